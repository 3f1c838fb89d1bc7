"""Deployments of templates. The emulator has no template language: it accepts templates whose resources are written out."""

import pytest
from azure.mgmt.resource.deployments.models import Deployment, DeploymentProperties

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"


def deployment(resources=()):
    template = {"$schema": SCHEMA, "contentVersion": "1.0.0.0", "resources": list(resources)}
    return Deployment(properties=DeploymentProperties(mode="Incremental", template=template, parameters={}))


def test_an_empty_template_is_deployed_read_listed_and_deleted(cloud, clients, responses):
    deployments = clients.deployments.deployments
    made = deployments.begin_create_or_update(cloud.group, "empty", deployment(), raw_response_hook=responses).result()
    assert responses.statuses[0] == 201
    assert "Azure-AsyncOperation" in responses.all[0].headers
    assert made.properties.provisioning_state == "Succeeded"
    assert made.properties.mode == "Incremental"
    assert made.properties.output_resources == []
    assert deployments.get(cloud.group, "empty").name == "empty"
    assert deployments.check_existence(cloud.group, "empty") is True
    assert "empty" in [it.name for it in deployments.list_by_resource_group(cloud.group)]
    deployments.begin_delete(cloud.group, "empty").result()
    assert deployments.check_existence(cloud.group, "empty") is False


def test_a_deployment_is_no_resource_of_its_group(cloud, clients):
    clients.deployments.deployments.begin_create_or_update(cloud.group, "unlisted", deployment()).result()
    assert "unlisted" not in [it.name for it in clients.resource.resources.list_by_resource_group(cloud.group)]


def test_a_missing_deployment_is_an_error(cloud, clients, rejected):
    with rejected(404, "DeploymentNotFound"):
        clients.deployments.deployments.get(cloud.group, "missing")


def table(cloud, name):
    return {
        "type": "Microsoft.Network/routeTables",
        "apiVersion": "2024-05-01",
        "name": name,
        "location": cloud.location,
    }


def test_a_resource_that_is_written_out_is_deployed(cloud, clients):
    template = deployment([table(cloud, "deployed")])
    made = clients.deployments.deployments.begin_create_or_update(cloud.group, "full", template).result()
    assert made.properties.provisioning_state == "Succeeded"
    assert [it.id.rsplit("/", 1)[-1] for it in made.properties.output_resources] == ["deployed"]
    assert clients.network.route_tables.get(cloud.group, "deployed").provisioning_state == "Succeeded"


@pytest.mark.emulator
def test_an_expression_is_rejected(cloud, clients, rejected):
    template = deployment([table(cloud, "[parameters('name')]")])
    with rejected(400, "InvalidTemplate"):
        clients.deployments.deployments.begin_create_or_update(cloud.group, "evaluated", template).result()
