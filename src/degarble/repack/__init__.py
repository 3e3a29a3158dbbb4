"""Changes of layout between checkpoint and kernel, and the proof that they lose nothing.

interface.py     Layout (pack, unpack), Step, Relayout; every file below is found by walking
natural.py       the codes themselves, one to a byte
gptq.py          words along the input                      <-> compressed-tensors, AWQ GEMM
awq_gemm.py      words along the output, 0 2 4 6 1 3 5 7    <-> AWQ GEMV
awq_gemv.py      words along the input, output-major         =  compressed-tensors at 4 bits
compressed.py    one dense stream of bits a row
marlin.py        Marlin-style tiles of 16 x 64              <-  GPTQ, AWQ GEMM
exllama.py       words shuffled for pairs of halves         <-> GPTQ
gguf_halves.py   low and high nibbles are the two halves    <-> compressed-tensors; <-> rows of four interleaved
zero_points.py   zero points stored minus one, well and badly
truncations.py   steps that are known to destroy codes, as functions of one code
probe.py         the matrices that show every code at every position
verdict.py       what can be said about a chain of steps
verify.py        runs a chain of steps over them and says what it lost, and where
foreign.py       the same for a function of the user's, in a process of its own (worker.py)
"""
