"""The gate: drafters held to bars, cheap checks first, each outcome on its own."""
