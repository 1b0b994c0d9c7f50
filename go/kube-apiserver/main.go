// kube-apiserver with Gatepost's admission plugin compiled in. What differs from upstream's cmd/kube-apiserver is marked.
//
// It is built by `tests/e2e/kube/get.sh`, which writes a go.mod for the wanted version of Kubernetes: its staging modules
// must all be replaced by that version.
package main

import (
	"os"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"gatepost.dev/admission"
)

func main() {
	os.Exit(cli.Run(command()))
}

func command() *cobra.Command {
	s := options.NewServerRunOptions()

	// The plugin. It is on; --disable-admission-plugins=Gatepost switches it off.
	plugins := s.Admission.GenericAdmission
	admission.Register(plugins.Plugins)
	plugins.RecommendedPluginOrder = admission.Order(plugins.RecommendedPluginOrder)

	ctx := genericapiserver.SetupSignalContext()
	features := s.GenericServerRunOptions.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	cmd := &cobra.Command{
		Use:          "kube-apiserver",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return s.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(*cobra.Command, []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(s.Logs, features); err != nil {
				return err
			}
			completed, err := s.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			return app.Run(ctx, completed)
		},
	}
	cmd.SetContext(ctx)
	sets := s.Flags()
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	return cmd
}
