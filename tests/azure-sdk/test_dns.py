"""Public DNS: zones and record sets, and the conditions with which a name is claimed."""

import pytest
from azure.core.exceptions import ResourceNotFoundError

TTL = 300


@pytest.fixture(scope="module")
def zone(cloud, clients):
    """The name of a zone, which nobody delegates to."""
    name = f"sdk-{cloud.suffix}.example"
    clients.dns.zones.create_or_update(cloud.group, name, {"location": "global"})
    return name


@pytest.fixture(scope="module")
def records(clients):
    return clients.dns.record_sets


def addresses(*values, **metadata):
    """A record set of addresses. The service spells its members with capitals."""
    return {"properties": {"TTL": TTL, "ARecords": [{"ipv4Address": it} for it in values], "metadata": metadata}}


def test_a_zone_is_created_read_changed_and_deleted(cloud, clients, responses):
    zones, name = clients.dns.zones, f"life-{cloud.suffix}.example"
    made = zones.create_or_update(cloud.group, name, {"location": "global"}, raw_response_hook=responses)
    assert responses.statuses == [201]
    assert made.name == name
    assert made.name_servers
    assert made.number_of_record_sets == 2, "SOA and NS"
    zones.create_or_update(cloud.group, name, {"location": "global"}, raw_response_hook=responses)
    assert responses.statuses == [201, 200]
    assert zones.update(cloud.group, name, {"tags": {"a": "1"}}).tags == {"a": "1"}
    assert zones.get(cloud.group, name).etag
    assert name in [it.name for it in zones.list_by_resource_group(cloud.group)]
    assert name in [it.name for it in zones.list()]
    assert zones.begin_delete(cloud.group, name).result() is None
    with pytest.raises(ResourceNotFoundError):
        zones.get(cloud.group, name)


def test_a_zone_is_created_once_under_its_condition(cloud, clients, zone, rejected):
    with rejected(412, "PreconditionFailed"):
        clients.dns.zones.create_or_update(cloud.group, zone, {"location": "global"}, if_none_match="*")


def test_a_record_set_is_created_read_changed_and_deleted(cloud, zone, records, responses):
    place = (cloud.group, zone, "www", "A")
    made = records.create_or_update(*place, addresses("192.0.2.1"), raw_response_hook=responses)
    assert responses.statuses == [201]
    assert made.ttl == TTL
    assert made.fqdn == f"www.{zone}."
    assert [it.ipv4_address for it in made.a_records] == ["192.0.2.1"]
    changed = records.create_or_update(*place, addresses("192.0.2.2"), raw_response_hook=responses)
    assert responses.statuses == [201, 200]
    assert changed.etag != made.etag
    assert [it.ipv4_address for it in records.get(*place).a_records] == ["192.0.2.2"]
    assert records.update(*place, {"properties": {"TTL": 60}}).ttl == 60
    assert [it.ipv4_address for it in records.get(*place).a_records] == ["192.0.2.2"]
    assert records.delete(*place, raw_response_hook=responses) is None
    assert records.delete(*place, raw_response_hook=responses) is None
    assert responses.statuses[-2:] == [200, 204], "what is absent is deleted already"
    with pytest.raises(ResourceNotFoundError):
        records.get(*place)


def test_a_name_is_claimed_by_the_first_who_creates_it(cloud, zone, records, rejected):
    place = (cloud.group, zone, "api.claimed", "A")
    mine = records.create_or_update(*place, addresses(resourceId="mine"), if_none_match="*")
    assert mine.metadata == {"resourceId": "mine"}
    assert not mine.a_records
    with rejected(412, "PreconditionFailed"):
        records.create_or_update(*place, addresses(resourceId="theirs"), if_none_match="*")
    assert records.get(*place).metadata == {"resourceId": "mine"}


def test_a_record_set_is_changed_and_deleted_only_under_its_etag(cloud, zone, records, rejected):
    place = (cloud.group, zone, "api.etagged", "A")
    first = records.create_or_update(*place, addresses())
    second = records.create_or_update(*place, addresses("192.0.2.3"), if_match=first.etag)
    with rejected(412, "PreconditionFailed"):
        records.create_or_update(*place, addresses("192.0.2.4"), if_match=first.etag)
    with rejected(412, "PreconditionFailed"):
        records.delete(*place, if_match=first.etag)
    records.delete(*place, if_match=second.etag)
    with pytest.raises(ResourceNotFoundError):
        records.get(*place)


def test_a_star_is_a_name(cloud, zone, records):
    made = records.create_or_update(cloud.group, zone, "*.apps", "A", addresses("192.0.2.5"))
    assert made.name == "*.apps"
    assert records.get(cloud.group, zone, "*.apps", "A").fqdn == f"*.apps.{zone}."
    assert [it.name for it in records.list_by_type(cloud.group, zone, "A", recordsetnamesuffix="apps")] == ["*.apps"]


def test_record_sets_are_listed_by_type_and_all(cloud, zone, records):
    records.create_or_update(cloud.group, zone, "listed", "A", addresses("192.0.2.6"))
    text = {"properties": {"TTL": TTL, "TXTRecords": [{"value": ["hello"]}]}}
    assert records.create_or_update(cloud.group, zone, "listed", "TXT", text).txt_records[0].value == ["hello"]
    alias = {"properties": {"TTL": TTL, "CNAMERecord": {"cname": "example.com"}}}
    assert records.create_or_update(cloud.group, zone, "alias", "CNAME", alias).cname_record.cname == "example.com"
    six = {"properties": {"TTL": TTL, "AAAARecords": [{"ipv6Address": "2001:db8::1"}]}}
    assert (
        records.create_or_update(cloud.group, zone, "listed", "AAAA", six).aaaa_records[0].ipv6_address == "2001:db8::1"
    )
    assert "listed" in [it.name for it in records.list_by_type(cloud.group, zone, "A")]
    assert "alias" not in [it.name for it in records.list_by_type(cloud.group, zone, "A")]
    expected = {("listed", "A"), ("listed", "TXT"), ("listed", "AAAA"), ("alias", "CNAME")}
    for found in (records.list_by_dns_zone(cloud.group, zone), records.list_all_by_dns_zone(cloud.group, zone)):
        assert expected <= {(it.name, it.type.rsplit("/", 1)[1]) for it in found}


def test_record_sets_are_listed_in_pages(cloud, zone, records):
    for number in range(5):
        records.create_or_update(cloud.group, zone, f"page-{number}", "A", addresses("192.0.2.7"))
    pages = [list(page) for page in records.list_by_type(cloud.group, zone, "A", top=2).by_page()]
    assert len(pages) >= 3
    assert all(len(page) <= 2 for page in pages)
    names = [it.name for page in pages for it in page]
    assert len(names) == len(set(names))
    assert {f"page-{number}" for number in range(5)} <= set(names)


def test_an_alias_is_alone_at_its_name(cloud, zone, records, rejected):
    records.create_or_update(cloud.group, zone, "taken", "A", addresses("192.0.2.8"))
    alias = {"properties": {"TTL": TTL, "CNAMERecord": {"cname": "example.com"}}}
    with rejected(400):
        records.create_or_update(cloud.group, zone, "taken", "CNAME", alias)


def test_an_address_that_is_none_is_rejected(cloud, zone, records, rejected):
    with rejected(400, "BadRequest"):
        records.create_or_update(cloud.group, zone, "wrong", "A", addresses("192.0.2.256"))


def test_a_record_set_of_a_missing_zone_is_rejected(cloud, records, rejected):
    with rejected(404, "ParentResourceNotFound", "ResourceNotFound"):
        records.create_or_update(cloud.group, "missing.example", "www", "A", addresses("192.0.2.9"))
