"""What httpx raises, as the client's own faults."""

import inspect

import httpx
import pytest

from topics.client.faults import (
    Broken,
    Fault,
    NotConnected,
    NotConnectedInTime,
    OutOfTime,
    Unsendable,
    Unwritten,
    fault_of,
    faults_of,
)

FAULTS = {
    httpx.CloseError: Broken,
    httpx.ConnectError: NotConnected,
    httpx.ConnectTimeout: NotConnectedInTime,
    httpx.DecodingError: Broken,
    httpx.LocalProtocolError: Unsendable,
    httpx.NetworkError: Broken,
    httpx.PoolTimeout: NotConnectedInTime,
    httpx.ProtocolError: Broken,
    httpx.ProxyError: Broken,
    httpx.ReadError: Broken,
    httpx.ReadTimeout: OutOfTime,
    httpx.RemoteProtocolError: Broken,
    httpx.RequestError: Broken,
    httpx.TimeoutException: OutOfTime,
    httpx.TooManyRedirects: Broken,
    httpx.TransportError: Broken,
    httpx.UnsupportedProtocol: Unsendable,
    httpx.WriteError: Broken,
    httpx.WriteTimeout: OutOfTime,
}


def test_the_table_names_every_error_of_httpx() -> None:
    """A version of httpx with another one is noticed here."""
    classes = [each for _, each in inspect.getmembers(httpx, inspect.isclass)]

    assert {each for each in classes if issubclass(each, httpx.RequestError)} == FAULTS.keys()


@pytest.mark.parametrize("kind", FAULTS)
def test_an_error_of_httpx_is_a_fault(kind: type[httpx.RequestError]) -> None:
    """By its class, or that of its nearest ancestor in the table; with its message and its server."""
    request = httpx.Request("GET", "http://user:secret@a.example:4000/v0/topics")
    fault = fault_of(kind("cut", request=request))

    assert (type(fault), str(fault)) == (FAULTS[kind], "cut")
    assert fault.origin == "http://a.example:4000"


def test_an_error_without_words() -> None:
    """Its name is better than nothing; without a request there is no server to name."""
    fault = fault_of(httpx.ReadTimeout(""))

    assert (str(fault), fault.origin) == ("ReadTimeout", "")


def test_only_errors_of_the_connection_become_faults() -> None:
    """What was raised is the cause of the fault; anything else passes."""
    cut = httpx.ReadError("cut")
    with pytest.raises(Broken) as raised, faults_of(httpx.RequestError):
        raise cut
    assert raised.value.__cause__ is cut

    with pytest.raises(KeyError), faults_of(httpx.RequestError):
        raise KeyError("x")


def test_what_a_fault_says_about_the_request() -> None:
    """It may have arrived, but where there was no connection; only silence is no sign of life."""
    every = [Fault, Unsendable, Broken, Unwritten, OutOfTime, NotConnected, NotConnectedInTime]

    assert [k for k in every if issubclass(k, NotConnected)] == [NotConnected, NotConnectedInTime]
    assert [k for k in every if issubclass(k, OutOfTime)] == [OutOfTime, NotConnectedInTime]
    assert all(issubclass(kind, Fault) for kind in every)
