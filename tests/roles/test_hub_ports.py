"""Ports that are taken are told before anything starts. Method: real listeners on loopback."""

import socket
import threading
from pathlib import Path

import msgspec
import pytest

from bus.clock import now
from bus.config import Config, local, publish_address
from bus.config_rules import port_of
from bus.errors import ConfigError
from roles.hub_ports import check_hub_ports

NODES = ["n1", "n2"]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return local(tmp_path, nodes=2, run={"hub": 2})


def listener(address: str) -> socket.socket:
    return socket.create_server(("127.0.0.1", port_of(address)))


def test_free_ports_are_passed_and_left_free(config: Config) -> None:
    check_hub_ports(config, NODES)
    check_hub_ports(config, NODES)


def test_taken_port_is_told_with_what_to_do(config: Config) -> None:
    second = publish_address(config.hubs[1])
    with listener(second), pytest.raises(ConfigError) as caught:
        check_hub_ports(config, NODES, wait_s_max=0)
    assert str(caught.value) == (
        f"{second} is taken: this cluster is already up (`softstate status` shows it), or another "
        "program has the port"
    )


def test_hub_of_another_node_is_not_looked_at(config: Config) -> None:
    with listener(config.hubs[1]):
        check_hub_ports(config, ["n1"], wait_s_max=0)


def test_port_that_is_freed_in_time_is_no_trouble(config: Config) -> None:
    held = listener(config.hubs[0])
    began = now()
    ending = threading.Timer(0.15, held.close)
    ending.start()
    check_hub_ports(config, NODES, wait_s_max=5)
    assert 0.1 < now() - began < 5
    ending.join()


def test_address_of_another_machine_is_told(config: Config) -> None:
    elsewhere = msgspec.structs.replace(config, hubs=("tcp://192.0.2.1:7000", config.hubs[1]))
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:7000 is not an address of this machine"):
        check_hub_ports(elsewhere, NODES, wait_s_max=0)


def test_ipc_hub_is_taken_only_if_somebody_answers(config: Config, tmp_path: Path) -> None:
    hub = f"ipc://{tmp_path}/hub"
    config = msgspec.structs.replace(config, hubs=(hub, config.hubs[1]))
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(f"{tmp_path}/hub")
        held.listen(1)
        with pytest.raises(ConfigError, match="hub is taken: this cluster is already up"):
            check_hub_ports(config, NODES, wait_s_max=0)
    check_hub_ports(config, NODES, wait_s_max=0)  # What a dead hub left behind is replaced.
