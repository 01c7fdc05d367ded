"""Real engines, stock and patched: how a kernel that wins alone does in serving. See `engine.base` for what every engine hands over."""
