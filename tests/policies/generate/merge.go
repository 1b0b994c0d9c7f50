package main

import (
	"encoding/json"
	"maps"
	"math/rand"
	"os"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/yaml"
)

// merge is an object, a configuration that is applied to it, and what upstream makes of the two.
type merge struct {
	Object        json.RawMessage `json:"object"`
	Configuration json.RawMessage `json:"configuration"`
	Merged        any             `json:"merged,omitempty"`
	Error         string          `json:"error,omitempty"`
}

const podSpec = `
  nodeSelector: {disk: ssd, zone: a}
  hostNetwork: true
  terminationGracePeriodSeconds: 30
  imagePullSecrets: [{name: one}, {name: two}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [a, b]}, {ip: 10.0.0.2, hostnames: [c]}]
  schedulingGates: [{name: a.b/c}, {name: a.b/d}]
  readinessGates: [{conditionType: a.b/c}]
  tolerations: [{key: a, operator: Exists}, {key: b, value: c, effect: NoSchedule}]
  securityContext: {runAsUser: 1000, runAsNonRoot: true, supplementalGroups: [1, 2], sysctls: [{name: a, value: b}]}
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
  - {maxSkew: 2, topologyKey: host, whenUnsatisfiable: ScheduleAnyway}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b, c]}]}]
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchFields: []}}]
  volumes:
  - {name: data, emptyDir: {sizeLimit: 1Gi}}
  - {name: config, configMap: {name: c, items: [{key: a, path: b}]}}
  - {name: all, projected: {sources: [{secret: {name: s}}, {configMap: {name: t}}]}}
  initContainers: [{name: init, image: i, command: [a, b]}]
  containers:
  - name: main
    image: registry/main:1
    args: [a, b]
    env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: C}]
    envFrom: [{configMapRef: {name: e}}]
    ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: UDP}, {containerPort: 443, name: tls}]
    resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 1}, claims: [{name: a}, {name: b, request: c}]}
    volumeMounts: [{name: data, mountPath: /data}, {name: config, mountPath: /etc, readOnly: true}]
    volumeDevices: [{name: data, devicePath: /dev}]
    securityContext: {privileged: false, capabilities: {add: [A], drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
    livenessProbe: {httpGet: {path: /, port: 80, httpHeaders: [{name: a, value: b}]}, periodSeconds: 5}
    lifecycle: {preStop: {exec: {command: [a]}}}
  - {name: sidecar, image: registry/sidecar:2, ports: [{containerPort: 81}], env: [{name: A, value: x}]}
  - {name: third, image: registry/third:3}
`

const objectMeta = `
metadata:
  name: web
  labels: {app: web, tier: front}
  annotations: {a.b/c: d}
  finalizers: [a.b/c, a.b/d]
  ownerReferences:
  - {apiVersion: v1, kind: Node, name: one, uid: u1, controller: true}
  - {apiVersion: v1, kind: Node, name: two, uid: u2}
`

// mergeBases are objects of which others are made, by the path of the OpenAPI document of their kind.
var mergeBases = [][2]string{
	{"api/v1", "apiVersion: v1\nkind: Pod" + objectMeta + "spec:" + podSpec},
	{"apis/apps/v1", "apiVersion: apps/v1\nkind: Deployment" + objectMeta + `
spec:
  replicas: 3
  paused: false
  selector: {matchLabels: {app: web}, matchExpressions: [{key: a, operator: Exists}]}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}
  template:
    metadata: {labels: {app: web}}
    spec: {}
`},
	{"api/v1", "apiVersion: v1\nkind: Service" + objectMeta + `
spec:
  type: ClusterIP
  selector: {app: web}
  clusterIPs: [10.0.0.1, "::1"]
  externalIPs: [1.1.1.1, 2.2.2.2]
  ipFamilies: [IPv4]
  loadBalancerSourceRanges: [10.0.0.0/8]
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: dns, port: 53, protocol: UDP, targetPort: dns}
  - {name: dns-tcp, port: 53, protocol: TCP, nodePort: 30053}
`},
}

// merges writes so many objects and configurations, and what upstream makes of them.
func merges(seed, count, path string) {
	number, err := strconv.ParseInt(seed, 10, 64)
	must(err)
	many, err := strconv.Atoi(count)
	must(err)
	s := merger{rand.New(rand.NewSource(number))}
	converters := map[string]managedfields.TypeConverter{}
	var bases []map[string]any
	for _, base := range mergeBases {
		var object map[string]any
		must(yaml.Unmarshal([]byte(base[1]), &object))
		bases = append(bases, object)
		var document spec3.OpenAPI
		text, err := documents()[base[0]].Schema(runtime.ContentTypeJSON)
		must(err)
		must(json.Unmarshal(text, &document))
		converters[base[0]], err = managedfields.NewTypeConverter(document.Components.Schemas, false)
		must(err)
	}
	pod := bases[0]["spec"]
	bases[1]["spec"].(map[string]any)["template"].(map[string]any)["spec"] = pod
	all := []merge{}
	for range many {
		at := s.Intn(len(bases))
		base := bases[at]
		object, configuration := map[string]any{}, map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(base)) {
			object[key], configuration[key] = s.part(base[key], false), s.part(base[key], true)
		}
		for _, one := range []map[string]any{object, configuration} {
			one["apiVersion"], one["kind"] = base["apiVersion"], base["kind"]
		}
		one := merge{Object: json.RawMessage(compact(object)), Configuration: json.RawMessage(compact(configuration))}
		live := &unstructured.Unstructured{Object: integers(one.Object)}
		merged, err := patch.ApplyStructuredMergeDiff(converters[mergeBases[at][0]], live, &unstructured.Unstructured{Object: integers(one.Configuration)})
		if err != nil {
			one.Error = err.Error()
		} else {
			one.Merged = merged.(*unstructured.Unstructured).Object
		}
		all = append(all, one)
	}
	must(os.WriteFile(path, []byte(compact(all)), 0o644))
}

type merger struct{ *rand.Rand }

// mergeKeys are the names of fields that are keys of lists.
var mergeKeys = []string{"name", "containerPort", "port", "protocol", "mountPath", "devicePath", "ip", "uid", "topologyKey", "whenUnsatisfiable", "conditionType", "request"}

// atomic are names of fields that no configuration may have. They are mostly left out.
var atomic = []string{
	"ownerReferences", "nodeSelector", "tolerations", "supplementalGroups", "sysctls", "labelSelector", "nodeSelectorTerms", "affinity", "items",
	"sources", "command", "args", "envFrom", "add", "drop", "httpHeaders", "selector", "clusterIPs", "externalIPs", "ipFamilies",
	"loadBalancerSourceRanges", "hostnames", "imagePullSecrets", "hostAliases", "fieldRef", "configMap", "valueFrom",
}

// wrong are values that mostly are of another type than the schema has.
var wrong = []any{nil, true, 1, 1.5, "a", "", []any{}, map[string]any{}, []any{"a", "a"}, map[string]any{"a": "b"}, []any{nil}, []any{map[string]any{"name": "main"}}}

// part returns a value of which members and items are left out or moved, and scalars changed. A configuration has fewer,
// and sometimes ones of another type.
func (s merger) part(value any, configuration bool) any {
	kept := 9
	if configuration {
		kept = 5
		if s.Intn(100) == 0 {
			return wrong[s.Intn(len(wrong))]
		}
	}
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if configuration && slices.Contains(atomic, key) && s.Intn(30) > 0 {
				continue
			}
			if s.Intn(10) < kept || slices.Contains(mergeKeys, key) && s.Intn(20) > 0 {
				out[key] = s.part(v[key], configuration)
			}
		}
		if configuration && s.Intn(100) == 0 {
			out["unknown"] = wrong[s.Intn(len(wrong))]
		}
		return out
	case []any:
		out := []any{}
		for _, item := range v {
			if s.Intn(10) < kept+1 {
				out = append(out, s.part(item, configuration))
			}
		}
		if len(v) > 0 && s.Intn(6) == 0 {
			out = append(out, s.part(v[s.Intn(len(v))], configuration))
		}
		if s.Intn(3) == 0 {
			s.Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
		}
		return out
	case string:
		if s.Intn(8) == 0 {
			return []string{"", "TCP", "UDP", "new", v + "2"}[s.Intn(5)]
		}
	case int64, float64:
		if s.Intn(8) == 0 {
			return []any{0, 80, 443, 53}[s.Intn(4)]
		}
	}
	return value
}
