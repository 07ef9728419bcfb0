"""What a model does with positions as settings and flags; private, `situs.models.write` chooses among them.

ropes.py      a rotary call as rope parameters: base, share, scaling
settings.py   a whole configuration in today's or the older spelling
checking.py   that reading what was written gives the same positions
overrides.py  --hf-overrides of vLLM; flags.py flags of llama.cpp
"""
