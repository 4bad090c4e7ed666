"""Not a fake: llama.cpp's own server, with a model of random weights that is made here.

As a program, ``python -m tests.fakes.llama_cpp DIRECTORY``; prints its base URL as its last line and serves
until its standard input ends. Needs the packages xllamacpp and gguf, which the tests' lock does not have.
"""

import sys
from pathlib import Path
from typing import Any

_WIDTH, _HEADS, _LAYERS, _INNER, _CONTEXT = 64, 4, 2, 128, 2_048
_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def make_model(path: Path) -> None:
    """Write a llama of 100,000 random weights, with a vocabulary of bytes, as GGUF."""
    import gguf
    import numpy as np

    model: Any = gguf.GGUFWriter(str(path), "llama")
    model.add_context_length(_CONTEXT)
    model.add_embedding_length(_WIDTH)
    model.add_block_count(_LAYERS)
    model.add_feed_forward_length(_INNER)
    model.add_head_count(_HEADS)
    model.add_head_count_kv(_HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(_WIDTH // _HEADS)
    kinds = gguf.TokenType
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    tokens += [f"\u2581{letter}".encode() for letter in "abcdefghijklmnopqrstuvwxyz"]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256, *[kinds.NORMAL] * 26]
    model.add_vocab_size(len(tokens))
    model.add_tokenizer_model("llama")
    model.add_token_list(tokens)
    model.add_token_scores([0.0] * len(tokens))
    model.add_token_types(types)
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_unk_token_id(0)
    model.add_chat_template(_TEMPLATE)
    random = np.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        model.add_tensor(name, (random.standard_normal(shape) * 0.2).astype(np.float32))

    add("token_embd.weight", len(tokens), _WIDTH)
    add("output.weight", len(tokens), _WIDTH)
    model.add_tensor("output_norm.weight", np.ones(_WIDTH, np.float32))
    for layer in range(_LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            model.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(_WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", _WIDTH, _WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", _INNER, _WIDTH)
        add(f"blk.{layer}.ffn_up.weight", _INNER, _WIDTH)
        add(f"blk.{layer}.ffn_down.weight", _WIDTH, _INNER)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


def main(directory: str) -> None:
    """Serve on a free port until standard input ends."""
    import xllamacpp

    path = Path(directory) / "random.gguf"
    make_model(path)
    params: Any = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = _CONTEXT, 1, 1
    params.port = 0
    server: Any = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
