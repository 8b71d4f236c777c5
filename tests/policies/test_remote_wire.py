from __future__ import annotations

import contextlib
import io

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from besttake.policies.remote_wire import (
    Message,
    WireError,
    pack_message,
    pack_openpi,
    unpack_message,
    unpack_openpi,
)

arrays = hnp.arrays(
    dtype=st.one_of(
        hnp.boolean_dtypes(), hnp.integer_dtypes(endianness="<"), hnp.floating_dtypes(sizes=(32, 64), endianness="<")
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(arrays)
def test_an_array_survives_both_wires(array):
    for back in (
        unpack_message(pack_message(Message("action", {"actions": array}))).payload["actions"],
        unpack_openpi(pack_openpi({"actions": array}))["actions"],
    ):
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


@given(st.binary(max_size=200))
def test_random_bytes_raise_a_wire_error_or_decode_to_plain_values(data):
    for unpack in (unpack_message, unpack_openpi):
        with contextlib.suppress(WireError):
            assert isinstance(unpack(data), dict | Message)


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["x"]), np.zeros(2, complex), np.zeros(2, "V4")])
def test_only_plain_numbers_are_sent(array):
    with pytest.raises(WireError, match="refused"):
        pack_message(Message("action", {"actions": array}))
    with pytest.raises(WireError, match="refused"):
        pack_openpi({"actions": array})


def test_a_message_of_bytes_that_unpack_to_gigabytes_is_refused():
    """A map is one byte on the wire and 64 in memory; a PNG of one colour is a thousandth of its pixels."""
    maps = b"\xdd" + (1 << 20).to_bytes(4, "big") + b"\x80" * (1 << 20)
    with pytest.raises(WireError, match="more than 200000 maps and lists"):
        unpack_openpi(maps)
    buffer = io.BytesIO()
    Image.new("RGB", (4000, 3000)).save(buffer, "PNG")
    picture = {"__image__": True, "format": "png", "data": buffer.getvalue()}
    payload = {"type": "observation", "seq": 1, "payload": {"images": {str(i): picture for i in range(3)}}}
    with pytest.raises(WireError, match="4000 x 3000 pixels refused"):
        unpack_message(msgpack.packb(payload))
