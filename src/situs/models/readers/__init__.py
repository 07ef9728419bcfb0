"""Readers of settings, one for each kind of model; private, `situs.models.read` chooses among them.

view.py        an object of settings while it is read: asked by name, checked, noted as read
facts.py       what transformers' classes say where a file is silent; keys.py the names of settings
families.py    rotary models, a row for each exception; rotary.py, ladders.py, rope.py, schedule.py read them
vision.py      rotary over rows and columns
biases.py      T5, ALiBi, DeBERTa and others that add to scores; bias_*.py images, documents, speech
tables.py      tables at the input, learned or of sines; table_rows.py the rows; fixed.py rotary of a fixed base
llama_cpp/     GGUF files, as llama.cpp runs them
reformer.py    Reformer, which is like no other
sizes.py       heads, layers and images in patches; stack.py stacks of layers that are alike
"""
