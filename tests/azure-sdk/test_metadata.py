"""The instance metadata service and scheduled events, which have no SDK but the credential in test_identity."""

import requests


def get(emulator, path, **parameters):
    url = emulator.endpoints["metadata"] + path
    return requests.get(url, params=parameters, headers={"Metadata": "true"}, timeout=10)


def test_a_request_without_the_metadata_header_is_rejected(emulator):
    url = emulator.endpoints["metadata"] + "/metadata/scheduledevents"
    response = requests.get(url, params={"api-version": "2020-07-01"}, timeout=10)
    assert response.status_code == 400


def test_scheduled_events_have_an_incarnation(emulator):
    response = get(emulator, "/metadata/scheduledevents", **{"api-version": "2020-07-01"})
    assert response.status_code == 200, response.text
    assert isinstance(response.json()["DocumentIncarnation"], int)
    assert isinstance(response.json()["Events"], list)


def test_a_token_is_text_throughout(emulator, clients):
    identity = clients.msi.user_assigned_identities.create_or_update(
        emulator.group, "metadata", {"location": emulator.location}
    )
    for version in ("2018-02-01", "2019-08-01"):
        response = get(
            emulator,
            "/metadata/identity/oauth2/token",
            resource="https://management.azure.com",
            client_id=identity.client_id,
            **{"api-version": version},
        )
        assert response.status_code == 200, response.text
        body = response.json()
        assert {"access_token", "expires_in", "expires_on", "resource", "token_type"} <= body.keys()
        assert all(isinstance(value, str) for value in body.values())


def test_an_unknown_identity_is_rejected(emulator):
    response = get(
        emulator,
        "/metadata/identity/oauth2/token",
        resource="https://management.azure.com",
        client_id="9a4c5e0e-0000-4000-8000-000000000000",
        **{"api-version": "2018-02-01"},
    )
    assert response.status_code == 400
    assert response.json()["error"]
