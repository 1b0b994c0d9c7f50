// Package admission is an admission plugin for API servers that are built on k8s.io/apiserver: it sends each write to a
// Gatepost sidecar in one protobuf message over gRPC, and applies the verdict.
//
// A server adds it in two lines, and it is on from then:
//
//	admission.Register(options.Plugins)
//	options.RecommendedPluginOrder = admission.Order(options.RecommendedPluginOrder)
//
// and names the sidecar in the file of --admission-control-config-file; see [Configuration].
//
// An object is encoded once in each phase, however many hooks Gatepost calls. A CREATE or UPDATE is two calls: Mutate,
// then Validate, which the server runs inside its storage. A DELETE or CONNECT is one call. Hooks that want another version
// than the client's have a call of their own, for which the object is converted.
//
// Gatepost's rules are followed over a stream, and a request that none of them matches makes no call. Without rules that are
// known to be up to date, each request makes one.
//
// A server may store objects before they are initialized, hidden from who may not see them: see [Initialization].
//
// Denials, warnings and audit annotations are those of the hooks themselves, without the prefixes that kube-apiserver
// adds to what a webhook says. A call that fails is judged by the plugin's own failure policy.
package admission
