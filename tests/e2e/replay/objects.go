package main

import (
	"encoding/json"
	"strings"
)

// object is what a request carries.
type object map[string]any

func newObject(apiVersion, kind, name string) object {
	return object{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
}

func pod(name string) object {
	o := newObject("v1", "Pod", name)
	o["spec"] = map[string]any{"containers": []any{map[string]any{"name": "main", "image": "registry.example/app:1"}}}
	return o
}

func deployment(name string) object {
	o := newObject("apps/v1", "Deployment", name)
	o["spec"] = map[string]any{
		"replicas": 1,
		"selector": map[string]any{"matchLabels": map[string]any{"app": name}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": name}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "registry.example/app:1"}}},
		},
	}
	return o
}

func namespace(name string) object { return newObject("v1", "Namespace", name) }

func configMap(name string) object {
	o := newObject("v1", "ConfigMap", name)
	o["data"] = map[string]any{"key": "value"}
	return o
}

func widget(name string) object {
	o := newObject("e2e.gatepost.dev/v1", "Widget", name)
	o["spec"] = map[string]any{"size": 1}
	return o
}

func autoscaler(version, name string) object {
	o := newObject("autoscaling/"+version, "HorizontalPodAutoscaler", name)
	spec := map[string]any{
		"minReplicas": 1, "maxReplicas": 3,
		"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"},
	}
	if version == "v1" {
		spec["targetCPUUtilizationPercentage"] = 80
	} else {
		spec["metrics"] = []any{map[string]any{"type": "Resource", "resource": map[string]any{
			"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": 80}}}}
	}
	return o.with("spec", spec)
}

func (o object) metadata(field, key, value string) object {
	metadata := o["metadata"].(map[string]any)
	values, ok := metadata[field].(map[string]any)
	if !ok {
		values = map[string]any{}
		metadata[field] = values
	}
	values[key] = value
	return o
}

func (o object) label(key, value string) object { return o.metadata("labels", key, value) }

func (o object) annotation(key, value string) object { return o.metadata("annotations", key, value) }

// script tells a hook what to do with this object: see ../hook/script.go.
func (o object) script(hook, script string) object {
	return o.annotation("e2e.gatepost.dev/"+hook, script)
}

// with sets a field of the top.
func (o object) with(key string, value any) object {
	o[key] = value
	return o
}

func get(path string) call { return call{method: "GET", path: path} }

func create(path string, o object) call { return call{method: "POST", path: path, body: o} }

func replace(path string, o object) call { return call{method: "PUT", path: path, body: o} }

func remove(path string) call { return call{method: "DELETE", path: path} }

func merge(path, patch string) call {
	return call{method: "PATCH", path: path, body: patch, contentType: "application/merge-patch+json"}
}

func apply(path string, o object) call {
	text, _ := json.Marshal(o)
	return call{method: "PATCH", path: path + "?fieldManager=replay", body: string(text), contentType: "application/apply-patch+yaml"}
}

// until repeats a call that changes nothing until it comes to this code: kube-apiserver, too, takes its time to know
// what was just written. Only the last of them counts.
func (c call) until(code int) call {
	c.code = code
	return c
}

// as lets someone else ask.
func (c call) as(user string, groups string) call {
	c.headers = map[string]string{
		"Impersonate-User": user, "Impersonate-Uid": "7", "Impersonate-Group": groups, "Impersonate-Extra-Team": "payments",
	}
	return c
}

func long(text string, times int) string { return strings.Repeat(text, times) }
