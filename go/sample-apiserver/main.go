// k8s.io/sample-apiserver, an API server that stands behind kube-apiserver's aggregator, with Gatepost's admission plugin
// compiled in. What differs from upstream's main.go is marked.
//
// It is built by `tests/e2e/kube/get.sh`, beside the kube-apiserver with the plugin.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/sample-apiserver/pkg/cmd/server"

	"gatepost.dev/admission"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	options := server.NewWardleServerOptions(os.Stdout, os.Stderr)

	// The plugin. It is on; --disable-admission-plugins=Gatepost switches it off.
	plugins := options.RecommendedOptions.Admission
	admission.Register(plugins.Plugins)
	plugins.RecommendedPluginOrder = admission.Order(plugins.RecommendedPluginOrder)

	cmd := server.NewCommandStartWardleServer(ctx, options, false)
	os.Exit(cli.Run(cmd))
}
