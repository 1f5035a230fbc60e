"""What a checkpoint's own files declare about its quantised weights: method, bits and group size, module by module.

Where it is declared: `quantization_config`, at the top of config.json or in the language model's section (Kimi-K2.5:
`text_config`); `quantization` (mlx_lm/utils.py); hf_quant_config.json (ModelOpt export/quant_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drafter_audit.drafter.config_view import ConfigView

_BITS_OF_ALGORITHM = {"NVFP4": 4, "MXFP4": 4, "W4A16": 4, "W4A8": 4, "FP8": 8, "W8A8": 8, "W8A16": 8, "MXFP8": 8}
_MOST_BITS = 16  # no packed format is wider
_MOST_GROUP = 2**20


QUANT_FILE = "hf_quant_config.json"  # ModelOpt's exports keep it beside config.json, some of them nowhere else


@dataclass(frozen=True)
class Scheme:
    """How some modules are quantised: `bits` per weight, `group_size` weights to a scale; None where not declared.

    `targets` are the modules it is for, by name or by `re:` pattern; none means those that no other scheme names.
    """

    bits: int | None = None
    group_size: int | None = None
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quantization:
    """`method` as declared, in lower case ("gptq", "compressed-tensors", "mlx"), None where nothing is declared.

    `layout` is the method's own word on how it packs, in lower case: AWQ's `version`, bitsandbytes' quant type,
    compressed-tensors' `format`, ModelOpt's algorithm; "" where it says none.
    """

    method: str | None = None
    layout: str = ""
    schemes: tuple[Scheme, ...] = ()

    def schemes_of(self, module: str) -> tuple[Scheme, ...]:
        """The schemes that may be that of `module`: those that name it, else those that name no module it could be."""
        named = tuple(scheme for scheme in self.schemes if any(_names(target, module) for target in scheme.targets))
        return named or tuple(scheme for scheme in self.schemes if not any(map(_is_name, scheme.targets)))


def read_quantization(config: ConfigView, quant_file: Mapping[str, Any]) -> Quantization:
    """The checkpoint's declaration; `quant_file` is hf_quant_config.json, asked where config.json says nothing.

    Raises ConfigError where a value has a wrong type.
    """
    for key in ("quantization_config", "quantization"):
        section = config.get(key)
        if section is not None and not isinstance(section, Mapping):
            raise config.wrong(key, section, "an object")
        if section:
            return _read(ConfigView(section, f"{config.where}: {key}"))
    return _read_file(ConfigView(quant_file, "hf_quant_config.json"))


def _read(section: ConfigView) -> Quantization:
    method = section.text("quant_method") or ("modelopt" if section.has("quant_algo") else None)
    layout = next((text for key in _LAYOUT_KEYS if (text := section.text(key))), "")
    if method is None and section.has("bits", "group_size"):
        return Quantization("mlx", section.text("mode") or "affine", tuple(_mlx(section)))
    schemes = tuple(_groups(section)) or (_scheme(section, _algorithm_bits(layout)),)
    return Quantization((method or "unnamed").lower(), layout.lower(), schemes)


_LAYOUT_KEYS = ("format", "quant_algo", "bnb_4bit_quant_type", "version", "fmt")


def _read_file(quant_file: ConfigView) -> Quantization:
    """hf_quant_config.json keeps its settings under `quantization`, and mixed precision under `quantized_layers`."""
    section = ConfigView(quant_file.section("quantization"), f"{quant_file.where}: quantization")
    algorithm = section.text("quant_algo")
    if algorithm is None:
        return Quantization()
    layers = ConfigView(section.section("quantized_layers"), f"{section.where}: quantized_layers")
    named = [_named_layer(ConfigView(layers.section(name), f"{layers.where}: {name}"), name) for name in layers]
    return Quantization("modelopt", algorithm.lower(), (_scheme(section, _algorithm_bits(algorithm)), *named))


def _named_layer(layer: ConfigView, name: str) -> Scheme:
    return _scheme(layer, _algorithm_bits(layer.text("quant_algo") or ""), (name,))


def _groups(section: ConfigView) -> Iterator[Scheme]:
    """The `config_groups` of compressed-tensors and ModelOpt: weights' settings, and the modules they are for."""
    groups = ConfigView(section.section("config_groups"), section.where)
    for name in groups:
        group = ConfigView(groups.section(name), f"{section.where}: {name}")
        weights = ConfigView(group.section("weights"), f"{group.where}: weights")
        targets = group.get("targets") or ()
        if not isinstance(targets, list | tuple) or not all(isinstance(target, str) for target in targets):
            raise group.wrong("targets", targets, "a list of module names")
        if weights.raw:
            yield _scheme(weights, None, tuple(targets))


def _mlx(section: ConfigView) -> Iterator[Scheme]:
    """MLX writes the settings of single modules beside the common ones, under their names."""
    yield _scheme(section, None)
    for name, value in section.raw.items():
        if isinstance(value, Mapping):
            yield _scheme(ConfigView(value, f"{section.where}: {name}"), None, (name,))


def _scheme(section: ConfigView, bits: int | None, targets: tuple[str, ...] = ()) -> Scheme:
    key = next((key for key in ("num_bits", "bits", "w_bit") if section.get(key) is not None), "bits")
    declared = section.integer(key)
    if declared is not None and declared > _MOST_BITS:
        raise section.wrong(key, declared, f"at most {_MOST_BITS}")
    if declared is None and section.get("load_in_4bit") is True:  # bitsandbytes
        declared = 4
    group = next((n for key in ("group_size", "q_group_size") if (n := _group_size(section, key))), None)
    return Scheme(declared or bits, group, targets)


def _group_size(section: ConfigView, key: str) -> int | None:
    """-1 means one scale a row, which is no group."""
    size = section.integer(key, minimum=-1)
    if size is not None and size > _MOST_GROUP:
        raise section.wrong(key, size, f"at most {_MOST_GROUP}")
    return size if size and size > 0 else None


def _algorithm_bits(algorithm: str) -> int | None:
    """Bits of ModelOpt's named algorithms, such as W4A16_AWQ, NVFP4_AWQ."""
    upper = algorithm.upper()
    return next((bits for name, bits in _BITS_OF_ALGORITHM.items() if name in upper), None)


def _is_name(target: str) -> bool:
    """Whether a target names modules; a class name such as `Linear` names none."""
    return target.startswith("re:") or "." in target or "*" in target or target.islower()


def _names(target: str, module: str) -> bool:
    """Whether `target` is the name of `module` or a pattern of it.

    Of a `re:` pattern only literals, `.*` and anchors are followed: a config from outside must not be able to run an
    expression without end. What uses more than that matches nothing.
    """
    if not target.startswith("re:"):
        return target in (module, module.rpartition(".")[2])
    pattern = target.removeprefix("re:").removeprefix("^")
    exact = pattern.endswith("$")
    parts = [part.replace("\\.", ".") for part in pattern.removesuffix("$").split(".*")]
    if any(set(part) & set("\\[](){}|+?*^$") for part in parts):
        return False
    return _in_order(parts, module, exact)


def _in_order(parts: list[str], text: str, exact: bool) -> bool:
    """Whether `text` starts with the first part and holds the others in order, the last at its end if `exact`."""
    if not text.startswith(parts[0]):
        return False
    at = len(parts[0])
    for part in parts[1:]:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return not exact or (text.endswith(parts[-1]) and (len(parts) > 1 or text == parts[0]))
