// An API server that stores objects before they are initialized: the flunders of k8s.io/sample-apiserver, with Gatepost's
// admission plugin and its storage. What a server does for that is marked.
//
// It is built by `tests/e2e/kube/get.sh`, beside the kube-apiserver with the plugin.
package main

import (
	"net/http"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/sample-apiserver/pkg/apis/wardle"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/apiserver"
	"k8s.io/sample-apiserver/pkg/cmd/server"
	"k8s.io/sample-apiserver/pkg/registry/wardle/flunder"

	"gatepost.dev/admission"
)

// What the plugin and the storage share.
var initialization = admission.NewInitialization()

func main() {
	ctx := genericapiserver.SetupSignalContext()
	options := server.NewWardleServerOptions(os.Stdout, os.Stderr)

	// The plugin. Instead of admission.Register, so that the storage knows it.
	plugins := options.RecommendedOptions.Admission
	initialization.Register(plugins.Plugins)
	plugins.RecommendedPluginOrder = admission.Order(plugins.RecommendedPluginOrder)

	cmd := server.NewCommandStartWardleServer(ctx, options, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := options.Validate(args); err != nil {
			return err
		}
		server, err := newServer(options)
		if err != nil {
			return err
		}
		return server.PrepareRun().RunWithContext(cmd.Context())
	}
	os.Exit(cli.Run(cmd))
}

func newServer(options *server.WardleServerOptions) (*genericapiserver.GenericAPIServer, error) {
	config, err := options.Config()
	if err != nil {
		return nil, err
	}
	// Requests may ask for objects that are not initialized.
	config.GenericConfig.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(initialization.Handler(api), config)
	}
	server, err := config.GenericConfig.Complete().New("stored-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	flunders, err := newFlunders(config.GenericConfig.RESTOptionsGetter)
	if err != nil {
		return nil, err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(wardle.GroupName, apiserver.Scheme, metav1.ParameterCodec, apiserver.Codecs)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		group.VersionedResourcesStorageMap[version] = map[string]rest.Storage{"flunders": flunders}
	}
	if err := server.InstallAPIGroup(&group); err != nil {
		return nil, err
	}
	// Reports to Gatepost, and its corrections.
	return server, server.AddPostStartHook("gatepost-initialization", func(hook genericapiserver.PostStartHookContext) error {
		return initialization.Run(hook, hook.LoopbackClientConfig)
	})
}

// As upstream's NewREST, but for its end.
func newFlunders(getter generic.RESTOptionsGetter) (rest.Storage, error) {
	strategy := flunder.NewStrategy(apiserver.Scheme)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &wardle.Flunder{} },
		NewListFunc:               func() runtime.Object { return &wardle.FlunderList{} },
		PredicateFunc:             flunder.MatchFlunder,
		DefaultQualifiedResource:  wardle.Resource("flunders"),
		SingularQualifiedResource: wardle.Resource("flunder"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(wardle.Resource("flunders")),
	}
	// Instead of store.CompleteWithOptions.
	return initialization.Complete(store, &generic.StoreOptions{RESTOptions: getter, AttrFunc: flunder.GetAttrs}, v1alpha1.SchemeGroupVersion.Version)
}
