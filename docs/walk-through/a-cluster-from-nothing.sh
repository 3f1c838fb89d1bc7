# Make a cluster and watch its steps. Network and principal are brought along from the simulated cloud.
shipshape cluster create harbour --wait
shipshape cluster list
shipshape cluster show harbour

# Use it.
shipshape cluster kubeconfig harbour -o harbour.kubeconfig
kubectl --kubeconfig harbour.kubeconfig get nodes,clusterversion,clusteroperators

# Rotate its certificates by a manifest. An update that arrives meanwhile waits for the manifest's next safe point and then goes
# first; the manifest goes on behind it.
rotation=$(shipshape task run rotate-certificates --cluster harbour -o name)
shipshape cluster update harbour --tag env=test --wait
shipshape manifest show "$rotation" --wait
shipshape manifest history "$rotation"

# Delete it: nothing that was made for it is left in the cloud.
shipshape cluster delete harbour --yes --wait
shipshape cloud resources

# The same through the public Python SDK, as it comes from PyPI.
pip install -r examples/python/requirements.txt
shipshape cloud prepare quay -o json > quay.json
python examples/python/cluster.py quay quay.json
