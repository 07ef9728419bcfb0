"""stub"""
READERS: dict[str, object] = {}
