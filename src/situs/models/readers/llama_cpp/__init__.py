"""Models as llama.cpp runs them; private, `situs.models.read` calls `read_gguf`.

settings.py        read_gguf(): the settings of a GGUF file -> positions, and what nobody read
architectures.py   what each architecture does otherwise than most, a row for each exception
stack.py           heads, scales, temperatures, tables; layers.py which of them slide, rotate, attend
rotation.py        how layers rotate; scaling.py how their frequencies are scaled
"""
