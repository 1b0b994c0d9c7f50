package main

import "fmt"

// namedCall is one case.
type namedCall struct {
	name string
	call
}

// Where the cases write. Namespace e2e and the kind Widget are there before they start; see ../run.sh.
const (
	pods        = "/api/v1/namespaces/e2e/pods"
	deployments = "/apis/apps/v1/namespaces/e2e/deployments"
	configMaps  = "/api/v1/namespaces/e2e/configmaps"
	widgets     = "/apis/e2e.gatepost.dev/v1/namespaces/e2e/widgets"
	namespaces  = "/api/v1/namespaces"
	dryRun      = "?dryRun=All"
)

// cases is every request in order; later ones build on what earlier ones left. ../config/hooks.yaml says who is asked.
func cases() []namedCall {
	var all []namedCall
	for _, some := range [][]namedCall{
		denials(), warnings(), annotations(), failures(), combinations(), updates(), deletes(), otherKinds(), selections(), subresources(), askers(),
		namespaced(), tenants(), versions(),
	} {
		all = append(all, some...)
	}
	return all
}

// scripted is a dry-run Pod that hook `pods` answers with this.
func scripted(script string) call { return create(pods+dryRun, pod("scripted").script("pods", script)) }

func denials() []namedCall {
	return []namedCall{
		{"pod allowed", create(pods, pod("kept"))},
		{"pod allowed, dry run", scripted(`{}`)},
		{"denied with nothing said", scripted(`{"allowed": false}`)},
		{"denied, stored object", create(pods, pod("refused").script("pods", `{"allowed": false, "status": {"message": "not today"}}`))},
		{"denied with a message", scripted(`{"allowed": false, "status": {"message": "not today"}}`)},
		{"denied with a reason only", scripted(`{"allowed": false, "status": {"reason": "NotToday"}}`)},
		{"denied with a code only", scripted(`{"allowed": false, "status": {"code": 418}}`)},
		{"denied with code, reason and message", scripted(`{"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "not you"}}`)},
		{"denied with 409", scripted(`{"allowed": false, "status": {"code": 409, "reason": "Conflict", "message": "again"}}`)},
		{"denied with 422 and details", scripted(`{"allowed": false, "status": {"code": 422, "reason": "Invalid", "message": "bad image", "details": {"name": "scripted", "kind": "Pod", "causes": [{"reason": "FieldValueInvalid", "message": "no tag", "field": "spec.containers[0].image"}]}}}`)},
		{"denied with 429 and a time to wait", scripted(`{"allowed": false, "status": {"code": 429, "reason": "TooManyRequests", "message": "slowly", "details": {"retryAfterSeconds": 3}}}`)},
		{"denied with empty details", scripted(`{"allowed": false, "status": {"details": {}}}`)},
		{"denied with metadata", scripted(`{"allowed": false, "status": {"message": "no", "metadata": {"resourceVersion": "5", "continue": "c", "remainingItemCount": 7}}}`)},
		{"denied with 500", scripted(`{"allowed": false, "status": {"code": 500, "message": "my own fault"}}`)},
		{"denied with code 200", scripted(`{"allowed": false, "status": {"code": 200, "status": "Success", "message": "odd"}}`)},
		{"denied with code 301", scripted(`{"allowed": false, "status": {"code": 301, "message": "elsewhere"}}`)},
		{"denied in more than one line, with odd letters", scripted(`{"allowed": false, "status": {"message": "first\n\tsecond <&> \"quoted\" \u2028 \u00e9\ud83d\ude00"}}`)},
		{"denied with 5,000 letters", scripted(`{"allowed": false, "status": {"message": "` + long("0123456789", 500) + `"}}`)},
		{"allowed with a status nobody should see", scripted(`{"status": {"code": 403, "message": "never mind"}}`)},
		{"denied by one, allowed by the other", create(pods+dryRun, pod("scripted").script("second", `{"allowed": false, "status": {"message": "second says no"}}`))},
		{"denied by one at once and by the other late", create(pods+dryRun, pod("scripted").
			script("second", `{"allowed": false, "status": {"code": 409, "message": "second says no"}}`).
			script("pods", `{"allowed": false, "delay": "600ms", "status": {"message": "pods says no"}}`))},
		{"denied by one late, the other allows with a warning", create(pods+dryRun, pod("scripted").
			script("second", `{"warnings": ["was here"]}`).
			script("pods", `{"allowed": false, "delay": "300ms", "status": {"message": "pods says no"}}`))},
		{"invalid object: no hook is asked", create(pods+dryRun, pod("scripted").with("spec", map[string]any{}))},
		{"generated name, allowed", create(pods+dryRun, pod("").with("metadata", map[string]any{"generateName": "generated-"}))},
	}
}

func warnings() []namedCall {
	return []namedCall{
		{"warned once", scripted(`{"warnings": ["mind the gap"]}`)},
		{"warned thrice, twice the same", scripted(`{"warnings": ["one", "two", "one"]}`)},
		{"warned in odd letters", scripted(`{"warnings": ["caf\u00e9 \"quoted\" \\ back, \ud83d\ude00"]}`)},
		{"warned with a control character", scripted(`{"warnings": ["line\nbreak", "good"]}`)},
		{"warned with nothing", scripted(`{"warnings": ["", "good"]}`)},
		{"warned at length", scripted(`{"warnings": ["` + long("long ", 100) + `"]}`)},
		{"warned beyond every limit", scripted(`{"warnings": ["a` + long("0123456789", 180) + `", "b` + long("0123456789", 180) + `", "c` + long("0123456789", 180) + `"]}`)},
		{"warned and denied", scripted(`{"allowed": false, "status": {"message": "no"}, "warnings": ["I did warn you"]}`)},
		{"warned by both", create(pods+dryRun, pod("scripted").script("pods", `{"warnings": ["pods warns"]}`).script("second", `{"warnings": ["second warns"]}`))},
		{"warned late, denied at once", create(pods+dryRun, pod("scripted").
			script("second", `{"allowed": false, "status": {"message": "second says no"}}`).
			script("pods", `{"delay": "600ms", "warnings": ["too late"]}`))},
		{"warned by both with the same words", create(pods+dryRun, pod("scripted").script("pods", `{"warnings": ["same"]}`).script("second", `{"warnings": ["same"]}`))},
	}
}

func annotations() []namedCall {
	return []namedCall{
		{"annotated", scripted(`{"auditAnnotations": {"why": "because"}}`)},
		{"annotated on denial", scripted(`{"allowed": false, "auditAnnotations": {"why": "because"}}`)},
		{"annotated by both under one key", create(pods+dryRun, pod("scripted").
			script("pods", `{"auditAnnotations": {"why": "pods"}}`).script("second", `{"auditAnnotations": {"why": "second", "more": "yes"}}`))},
		{"annotated under bad keys", scripted(`{"auditAnnotations": {"a/b": "1", "spaced out": "2", "": "3", "good": "4", "-bad": "5"}}`)},
		{"annotated under a key of 63 letters", scripted(`{"auditAnnotations": {"` + long("k", 63) + `": "1"}}`)},
		{"annotated under a key of 64 letters", scripted(`{"auditAnnotations": {"` + long("k", 64) + `": "1"}}`)},
		{"annotated with odd letters and much of it", scripted(`{"auditAnnotations": {"odd": "\n\u00e9<&>", "much": "` + long("0123456789", 500) + `"}}`)},
	}
}

// failures is what of broken hooks is not in combinations.tsv.
func failures() []namedCall {
	var all []namedCall
	for _, hook := range []string{"strict", "lenient"} {
		all = append(all,
			namedCall{hook + " hook is not there", create(pods+dryRun, pod("scripted").label("break", hook+"-dead"))},
			namedCall{hook + " hook has a certificate of someone else", create(pods+dryRun, pod("scripted").label("break", hook+"-untrusted"))},
		)
	}
	return append(all,
		namedCall{"lenient hook hangs, another warns", create(pods+dryRun, pod("scripted").label("break", "lenient").
			script("lenient", `{"do": "hang"}`).script("pods", `{"warnings": ["still here"]}`))},
		namedCall{"lenient hook hangs, another denies", create(pods+dryRun, pod("scripted").label("break", "lenient").
			// Late, so that the call of hook `second` is on its way when the denial ends the review.
			script("lenient", `{"do": "hang"}`).script("pods", `{"allowed": false, "delay": "300ms", "status": {"message": "still here"}}`))},
	)
}

func updates() []namedCall {
	kept := pods + "/kept"
	return []namedCall{
		{"pod updated by merge patch", merge(kept, `{"metadata": {"labels": {"step": "1"}}}`)},
		{"pod update denied by the new object", merge(kept, `{"metadata": {"annotations": {"e2e.gatepost.dev/pods": "{\"allowed\": false, \"status\": {\"message\": \"no change\"}}"}}}`)},
		{"pod updated by JSON patch", call{method: "PATCH", path: kept, contentType: "application/json-patch+json",
			body: `[{"op": "add", "path": "/metadata/labels/step", "value": "2"}]`}},
		{"pod updated by strategic merge patch, dry run", call{method: "PATCH", path: kept + dryRun, contentType: "application/strategic-merge-patch+json",
			body: `{"spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]}}`}},
		{"pod update that nothing changes", merge(kept, `{}`)},
		{"pod update with an old resourceVersion: conflict", merge(kept, `{"metadata": {"resourceVersion": "1", "labels": {"step": "3"}}}`)},
		{"pod applied anew", apply(pods+"/applied", pod("applied"))},
		{"pod applied again, changed", apply(pods+"/applied", pod("applied").label("step", "1"))},
		{"pod applied again, denied", apply(pods+"/applied", pod("applied").script("pods", `{"allowed": false}`))},
		{"pod that is not there updated", merge(pods+"/absent", `{"metadata": {"labels": {"step": "1"}}}`)},
	}
}

func deletes() []namedCall {
	return []namedCall{
		{"pod deletion, dry run", remove(pods + "/kept" + dryRun)},
		{"pod deleted", remove(pods + "/kept")},
		{"pod that is gone deleted", remove(pods + "/kept")},
		// Hook `deleting` is asked about deletions only: the annotation could not be written otherwise.
		{"pod that refuses its deletion made", create(pods, pod("clinging").label("step", "1").script("deleting", `{"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "it clings"}, "warnings": ["gently"], "auditAnnotations": {"clings": "yes"}}`))},
		{"pod deletion denied", remove(pods + "/clinging")},
		{"pod deletion denied, with options", call{method: "DELETE", path: pods + "/clinging",
			body: map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}}},
		{"collection of pods deleted, one clings", remove(pods + "?labelSelector=step")},
		{"pod that clings let go", merge(pods+"/clinging", `{"metadata": {"annotations": {"e2e.gatepost.dev/deleting": null}}}`)},
		{"collection of pods deleted", remove(pods)},
	}
}

func otherKinds() []namedCall {
	deny := `{"allowed": false, "status": {"message": "no %s"}}`
	numbers := map[string]any{"size": 1, "big": 9007199254740993, "small": 0.1, "nothing": nil, "nested": map[string]any{"deep": []any{1, "two", nil, map[string]any{"e\u0301": "\u2028<&>"}}}}
	return []namedCall{
		{"deployment allowed", create(deployments, deployment("kept"))},
		{"deployment denied", create(deployments, deployment("refused").script("deployments", fmt.Sprintf(deny, "deployment")))},
		{"deployment updated", merge(deployments+"/kept", `{"spec": {"replicas": 2}}`)},
		{"deployment update denied", merge(deployments+"/kept", `{"metadata": {"annotations": {"e2e.gatepost.dev/deployments": "{\"allowed\": false}"}}}`)},
		{"deployment scaled", merge(deployments+"/kept/scale", `{"spec": {"replicas": 3}}`)},
		{"deployment deleted", remove(deployments + "/kept")},
		{"namespace allowed", create(namespaces, namespace("e2e-made"))},
		{"namespace denied", create(namespaces, namespace("e2e-refused").script("namespaces", fmt.Sprintf(deny, "namespace")))},
		{"namespace updated", merge(namespaces+"/e2e-made", `{"metadata": {"labels": {"step": "1"}}}`)},
		{"namespace update denied", merge(namespaces+"/e2e-made", `{"metadata": {"annotations": {"e2e.gatepost.dev/namespaces": "{\"allowed\": false}"}}}`)},
		{"namespace deleted", remove(namespaces + "/e2e-made")},
		{"widget allowed", create(widgets, widget("kept").with("spec", numbers))},
		{"widget denied", create(widgets, widget("refused").script("widgets", fmt.Sprintf(deny, "widget")))},
		{"widget updated", merge(widgets+"/kept", `{"spec": {"size": 2}}`)},
		{"widget update denied", merge(widgets+"/kept", `{"metadata": {"annotations": {"e2e.gatepost.dev/widgets": "{\"allowed\": false}"}}}`)},
		{"widget status updated", merge(widgets+"/kept/status", `{"status": {"ready": true}}`)},
		{"widget deleted", remove(widgets + "/kept")},
		{"large config map", create(configMaps+dryRun, configMap("large").label("ask", "labelled").with("data", map[string]any{"text": long("line \"one\"\n\tcaf\u00e9 <&> \u2028", 16000)}))},
		{"config map of bytes", create(configMaps+dryRun, configMap("bytes").label("ask", "labelled").with("binaryData", map[string]any{"bytes": long("AAEC", 1000)}))},
	}
}

func selections() []namedCall {
	deny := `{"allowed": false, "status": {"message": "seen"}}`
	return []namedCall{
		{"object that the selector wants", create(configMaps+dryRun, configMap("one").label("ask", "labelled").script("labelled", deny))},
		{"object that the selector does not want", create(configMaps+dryRun, configMap("one").label("ask", "nobody").script("labelled", deny))},
		{"object that no rule wants", create("/api/v1/namespaces/e2e/secrets"+dryRun, newObject("v1", "Secret", "one").script("pods", deny))},
	}
}

func subresources() []namedCall {
	return []namedCall{
		{"pod for subresources made", create(pods, pod("parts"))},
		{"pod status updated", merge(pods+"/parts/status", `{"status": {"message": "fine"}}`)},
		{"pod bound", create(pods+"/parts/binding", newObject("v1", "Binding", "parts").with("target", map[string]any{"kind": "Node", "name": "nowhere"}))},
		{"pod evicted, dry run", create(pods+"/parts/eviction"+dryRun, newObject("policy/v1", "Eviction", "parts"))},
		{"exec into pod, denied", call{method: "POST", path: pods + "/parts/exec?command=ls&container=main&stdout=true"}},
		{"attach to pod, allowed and then not possible", call{method: "POST", path: pods + "/parts/attach?container=main&stdout=true"}},
		{"pod for subresources deleted", call{method: "DELETE", path: pods + "/parts?gracePeriodSeconds=0"}},
	}
}

func askers() []namedCall {
	return []namedCall{
		{"someone with groups and extras", scripted(`{}`).as("alice", "system:masters")},
		{"someone who may not: no hook is asked", scripted(`{}`).as("mallory", "nobodies")},
		{"a request with little time", call{method: "POST", path: pods + "?dryRun=All&timeout=4s", body: pod("scripted")}},
		{"a field manager with a name", call{method: "POST", path: pods + "?dryRun=All&fieldManager=replay&fieldValidation=Strict", body: pod("scripted")}},
	}
}
