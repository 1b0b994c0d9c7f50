package main

const (
	deny  = `{"allowed": false, "status": {"message": "seen"}}`
	roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
)

// in is the collection of config maps in this namespace.
func in(namespace string) string { return namespaces + "/" + namespace + "/configmaps" }

// forget ends a namespace that is being deleted: no controller is there to see that it is empty.
func forget(name string) call {
	return call{method: "PUT", path: namespaces + "/" + name + "/finalize", body: namespace(name).with("spec", map[string]any{})}
}

// namespaced is what hooks with a namespaceSelector see of what lies in namespaces.
func namespaced() []namedCall {
	seenBy := func(hook string) object { return configMap("one").script(hook, deny) }
	both := func(hook string) object { return seenBy(hook).label("ask", "both") }
	unseen := "/e2e-unseen"
	return []namedCall{
		{"object in a namespace that the selector wants", create(in("e2e-selected")+dryRun, seenBy("selected"))},
		{"object in a namespace that the selector does not want", create(in("e2e")+dryRun, seenBy("selected"))},
		{"object in a namespace that is exempt by its name", create(in("e2e-selected")+dryRun, seenBy("exempting"))},
		{"object in a namespace that is not exempt", create(in("e2e")+dryRun, seenBy("exempting"))},
		{"object and namespace that both selectors want", create(in("e2e-selected")+dryRun, both("both"))},
		{"object that both selectors do not want", create(in("e2e-selected")+dryRun, seenBy("both"))},
		{"namespace that both selectors do not want", create(in("e2e")+dryRun, both("both"))},
		{"object in no namespace and a namespaceSelector", create(roles+dryRun, newObject("rbac.authorization.k8s.io/v1", "ClusterRole", "e2e-one").script("roles", deny))},

		{"namespace made that hooks want", create(namespaces, namespace("e2e-new").label("e2e", "selected"))},
		{"object in it at once", create(in("e2e-new")+dryRun, seenBy("selected"))},
		{"namespace made that hooks do not want", create(namespaces, namespace("e2e-unseen").label("e2e", "exempt"))},
		{"object in that at once", create(in("e2e-unseen")+dryRun, seenBy("selected").script("exempting", deny))},
		{"object kept in the new namespace", create(in("e2e-new"), both("nobody"))},
		{"object in the new namespace changed", merge(in("e2e-new")+"/one", `{"metadata": {"annotations": {"e2e.gatepost.dev/both": "{\"allowed\": false}"}}}`)},

		{"namespace relabelled, so that hooks want it", merge(namespaces+unseen, `{"metadata": {"labels": {"e2e": "selected"}}}`)},
		{"object in it, once that is known", create(in("e2e-unseen")+dryRun, seenBy("selected")).until(400)},
		{"namespace relabelled, so that hooks do not want it", merge(namespaces+unseen, `{"metadata": {"labels": {"e2e": null}}}`)},
		{"object in it, once that is known as well", create(in("e2e-unseen")+dryRun, seenBy("selected")).until(201)},

		{"namespace with an object deleted", remove(namespaces + "/e2e-new")},
		{"object in a namespace that is going", create(in("e2e-new")+dryRun, seenBy("selected")).until(403)},
		{"object in a namespace that is going deleted", remove(in("e2e-new") + "/one")},
		{"namespace gone", forget("e2e-new")},
		{"object in a namespace that is gone", create(in("e2e-new")+dryRun, seenBy("selected")).until(404)},
		{"object in a namespace that never was", create(in("e2e-never")+dryRun, seenBy("selected"))},
		{"namespace made again, with other labels", create(namespaces, namespace("e2e-new").label("e2e", "exempt"))},
		{"object in the one made again", create(in("e2e-new")+dryRun, seenBy("selected").script("exempting", deny)).until(201)},
	}
}

// tenants is what hooks with a namespaceSelector see of namespaces themselves.
func tenants() []namedCall {
	tenant := namespaces + "/e2e-tenant"
	leaving := `{"metadata": {"labels": {"tenant": "leaving"}, "annotations": {"e2e.gatepost.dev/leaving": "{\"allowed\": false}"}}}`
	return []namedCall{
		{"namespace that the selector does not want", create(namespaces, namespace("e2e-tenant").script("tenants", `{"allowed": false}`))},
		{"namespace that the selector wants", create(namespaces+dryRun, namespace("e2e-other").label("tenant", "new").script("tenants", `{"allowed": false}`))},
		{"namespace that comes to be wanted", merge(tenant, `{"metadata": {"labels": {"tenant": "new"}}}`)},
		{"namespace that is wanted, allowed", merge(tenant, `{"metadata": {"labels": {"tenant": "new"}, "annotations": {"e2e.gatepost.dev/tenants": null}}}`)},
		{"namespace that is not wanted any more", merge(tenant, `{"metadata": {"labels": {"tenant": null}, "annotations": {"e2e.gatepost.dev/tenants": "{\"allowed\": false}"}}}`)},
		{"namespace that is to go and may not", merge(tenant, `{"metadata": {"labels": {"tenant": null}, "annotations": {"e2e.gatepost.dev/tenants": null}}}`)},
		{"namespace marked as leaving", merge(tenant, leaving)},
		{"namespace deletion that the selector wants", remove(tenant + dryRun).until(400)},
		{"namespace freed", merge(tenant, `{"metadata": {"labels": {"tenant": null}}}`)},
		{"namespace deletion that the selector does not want", remove(tenant + dryRun).until(200)},
		{"namespace deleted that nobody wants", remove(tenant)},
		{"namespace of a tenant finalized", forget("e2e-tenant")},
	}
}
