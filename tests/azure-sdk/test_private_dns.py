"""Private DNS: zones and links are long operations, record sets are not."""

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

TTL = 300
SUCCEEDED = "Succeeded"


@pytest.fixture(scope="module")
def zone(cloud, clients):
    name = f"sdk-{cloud.suffix}.internal"
    clients.privatedns.private_zones.begin_create_or_update(cloud.group, name, {"location": "global"}).result()
    return name


@pytest.fixture(scope="module")
def records(clients):
    return clients.privatedns.record_sets


def addresses(*values):
    """A record set of addresses. The service spells its members in lower case, unlike that of public zones."""
    return {"properties": {"ttl": TTL, "aRecords": [{"ipv4Address": it} for it in values]}}


def test_a_zone_is_created_read_changed_and_deleted(cloud, clients):
    zones, name = clients.privatedns.private_zones, f"life-{cloud.suffix}.internal"
    made = zones.begin_create_or_update(cloud.group, name, {"location": "global"}).result()
    assert made.properties.provisioning_state == SUCCEEDED
    assert made.properties.number_of_record_sets == 1, "SOA"
    assert zones.begin_update(cloud.group, name, {"tags": {"a": "1"}}).result().tags == {"a": "1"}
    assert zones.get(cloud.group, name).etag
    assert name in [it.name for it in zones.list_by_resource_group(cloud.group)]
    assert name in [it.name for it in zones.list()]
    assert zones.begin_delete(cloud.group, name).result() is None
    with pytest.raises(ResourceNotFoundError):
        zones.get(cloud.group, name)


def test_a_zone_is_changed_only_under_its_etag(cloud, clients, zone):
    zones = clients.privatedns.private_zones
    stale = zones.get(cloud.group, zone).etag
    zones.begin_create_or_update(cloud.group, zone, {"location": "global", "tags": {"a": "1"}}).result()
    with pytest.raises(ResourceModifiedError):
        zones.begin_create_or_update(
            cloud.group,
            zone,
            {"location": "global"},
            etag=stale,
            match_condition=MatchConditions.IfNotModified,
        ).result()
    assert zones.get(cloud.group, zone).tags == {"a": "1"}


def test_a_zone_with_a_link_cannot_be_deleted(cloud, clients, network, rejected):
    zones, links = clients.privatedns.private_zones, clients.privatedns.virtual_network_links
    name = f"linked-{cloud.suffix}.internal"
    zones.begin_create_or_update(cloud.group, name, {"location": "global"}).result()
    body = {"location": "global", "properties": {"virtualNetwork": {"id": network}, "registrationEnabled": False}}
    link = links.begin_create_or_update(cloud.group, name, "link", body).result()
    assert link.properties.provisioning_state == SUCCEEDED
    assert link.properties.virtual_network_link_state == "Completed"
    assert link.properties.virtual_network.id.lower() == network.lower()
    assert links.get(cloud.group, name, "link").properties.registration_enabled is False
    assert [it.name for it in links.list(cloud.group, name)] == ["link"]
    assert links.begin_update(cloud.group, name, "link", {"tags": {"a": "1"}}).result().tags == {"a": "1"}
    assert zones.get(cloud.group, name).properties.number_of_virtual_network_links == 1
    with rejected(409):
        zones.begin_delete(cloud.group, name).result()
    with rejected(409):
        links.begin_create_or_update(cloud.group, name, "second", body).result()
    links.begin_delete(cloud.group, name, "link").result()
    zones.begin_delete(cloud.group, name).result()


def test_a_record_set_is_created_read_changed_and_deleted(cloud, zone, records, responses):
    place = (cloud.group, zone, "A", "api")
    made = records.create_or_update(*place, addresses("10.0.0.10"), raw_response_hook=responses)
    assert responses.statuses == [201]
    assert made.properties.fqdn == f"api.{zone}."
    assert [it.ipv4_address for it in made.properties.a_records] == ["10.0.0.10"]
    records.create_or_update(*place, addresses("10.0.0.11"), raw_response_hook=responses)
    assert responses.statuses == [201, 200]
    assert records.update(*place, {"properties": {"ttl": 60}}).properties.ttl == 60
    assert [it.ipv4_address for it in records.get(*place).properties.a_records] == ["10.0.0.11"]
    records.delete(*place, raw_response_hook=responses)
    records.delete(*place, raw_response_hook=responses)
    assert responses.statuses[-2:] == [200, 204]
    with pytest.raises(ResourceNotFoundError):
        records.get(*place)


def test_a_record_set_is_created_once_and_changed_under_its_etag(cloud, zone, records):
    place = (cloud.group, zone, "A", "etagged")
    once = {"etag": "*", "match_condition": MatchConditions.IfMissing}
    first = records.create_or_update(*place, addresses("10.0.0.12"), **once)
    with pytest.raises(ResourceExistsError):
        records.create_or_update(*place, addresses("10.0.0.13"), **once)
    records.create_or_update(
        *place, addresses("10.0.0.14"), etag=first.etag, match_condition=MatchConditions.IfNotModified
    )
    with pytest.raises(ResourceModifiedError):
        records.create_or_update(
            *place, addresses("10.0.0.15"), etag=first.etag, match_condition=MatchConditions.IfNotModified
        )
    assert [it.ipv4_address for it in records.get(*place).properties.a_records] == ["10.0.0.14"]


def test_record_sets_are_listed_by_type_and_all(cloud, zone, records, responses):
    records.create_or_update(cloud.group, zone, "A", "*.apps", addresses("10.0.0.16"))
    text = {"properties": {"ttl": TTL, "txtRecords": [{"value": ["hello"]}]}}
    records.create_or_update(cloud.group, zone, "TXT", "listed", text)
    assert "*.apps" in [it.name for it in records.list_by_type(cloud.group, zone, "A")]
    assert "listed" not in [it.name for it in records.list_by_type(cloud.group, zone, "A")]
    everything = {it.name for it in records.list(cloud.group, zone, raw_response_hook=responses)}
    assert {"*.apps", "listed"} <= everything
    assert "/aLL?" in responses.requests[0][1], "the SDK spells it so"


def test_record_sets_are_listed_in_pages(cloud, zone, records):
    for number in range(5):
        records.create_or_update(cloud.group, zone, "A", f"page-{number}", addresses("10.0.0.17"))
    pages = [list(page) for page in records.list_by_type(cloud.group, zone, "A", top=2).by_page()]
    assert len(pages) >= 3
    names = [it.name for page in pages for it in page]
    assert len(names) == len(set(names))
    assert {f"page-{number}" for number in range(5)} <= set(names)


def test_a_link_needs_a_network(cloud, clients, zone, rejected):
    with rejected(400):
        clients.privatedns.virtual_network_links.begin_create_or_update(
            cloud.group, zone, "nowhere", {"location": "global", "properties": {"registrationEnabled": False}}
        ).result()
