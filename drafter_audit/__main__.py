"""`python -m drafter_audit`."""

from drafter_audit.cli.main import run

if __name__ == "__main__":
    run()
