"""Configurations of transformers as files hold them."""

from typing import Any


def file_of(config: Any) -> dict[str, Any]:
    """What a file says of a configuration that differs from its defaults, without parts that are configurations of
    their own."""
    parts = set(type(config).sub_configs)
    held = {key: value for key, value in config.to_diff_dict().items() if key not in parts}
    return {"model_type": config.model_type, **held}
