"""The machine's rates are measured once and kept; products are reduced only inside."""

import json

import pytest
import torch

from glocal.jacobian import rates
from glocal.jacobian.rates import machine_rates, products

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE_DIR", str(tmp_path / "cache"))
    machine_rates.cache_clear()
    yield tmp_path / "cache"
    machine_rates.cache_clear()


def test_rates_are_kept_in_the_cache_folder(folder, monkeypatch):
    first = machine_rates(torch.float32, CPU)
    assert first.products > 1e8 and first.memory > 1e7
    machine_rates.cache_clear()
    monkeypatch.setattr(rates, "_measure", lambda *_: pytest.fail("measured again"))
    assert machine_rates(torch.float32, CPU) == first


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', "null", "3"])
def test_a_damaged_cache_file_is_replaced(folder, content):
    folder.mkdir()
    (folder / "machine.json").write_text(content)
    made = machine_rates(torch.float32, CPU)
    assert any(
        entry == {"products": made.products, "memory": made.memory} for entry in json.loads((folder / "machine.json").read_text()).values()
    )


def test_an_unwritable_folder_only_measures_again(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLOCAL_CACHE_DIR", str(tmp_path / "file"))
    machine_rates.cache_clear()
    assert machine_rates(torch.float32, CPU).products > 0
    machine_rates.cache_clear()


def test_the_users_choice_of_products_comes_back():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(KeyError), products(True, CPU):
            assert torch.get_float32_matmul_precision() == "medium"
            raise KeyError
        with products(False, CPU):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
