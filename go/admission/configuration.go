package admission

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	// ConfigurationKind is the kind of a [Configuration].
	ConfigurationKind = "GatepostConfiguration"
	// ConfigurationVersion is the version of a [Configuration].
	ConfigurationVersion = "plugin.gatepost.dev/v1"

	defaultTimeout = 10 * time.Second
	maxTimeout     = 30 * time.Second

	// defaultMaxHolds leaves three quarters of what a server admits by its default (--max-mutating-requests-inflight=200).
	defaultMaxHolds = 50
)

// Configuration is what the file of --admission-control-config-file holds for this plugin:
//
//	apiVersion: apiserver.config.k8s.io/v1
//	kind: AdmissionConfiguration
//	plugins:
//	- name: Gatepost
//	  configuration:
//	    apiVersion: plugin.gatepost.dev/v1
//	    kind: GatepostConfiguration
//	    address: unix:///run/gatepost/gatepost.sock
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	// Address is that of the sidecar: unix:// and an absolute path, or HOST:PORT, which takes TLS.
	Address string `json:"address"`
	// TLS is how the sidecar is verified at HOST:PORT, and what this server shows it.
	TLS *TLS `json:"tls,omitempty"`
	// Timeout bounds each phase of a request, all its versions and rounds together; 10 s if omitted, at most 30 s. A request with less time left has that.
	Timeout metav1.Duration `json:"timeout,omitempty"`
	// FailurePolicy decides about a request whose call has failed: Fail rejects it with 500, Ignore lets it pass. Fail
	// if omitted. It never concerns a denial, nor a request that Gatepost cannot read: that one is rejected.
	FailurePolicy admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
	// ReinvocationPolicy is that of all mutating hooks behind Gatepost: Never (if omitted), or IfNeeded, by which they are
	// called again where another plugin has changed the object after them.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy,omitempty"`
	// MaxHolds bounds how many CREATEs are held at once in a server that stores objects before they are initialized; 50 if
	// omitted. Each takes one of the server's places for requests in flight. One beyond it is answered as one whose time is
	// over: the object exists, and is initialized later.
	MaxHolds int `json:"maxHolds,omitempty"`
	// Rules name the requests that are sent, in any version of their resource; all of them if omitted. The objects that configure admission itself are
	// never sent, as kube-apiserver sends them to no webhook.
	Rules []admissionregistrationv1.RuleWithOperations `json:"rules,omitempty"`
}

// TLS of the connection to the sidecar. The files of a client certificate are read anew for each connection.
type TLS struct {
	// CAFile holds the authorities that may vouch for the sidecar, in PEM. The system's if omitted.
	CAFile string `json:"caFile,omitempty"`
	// ServerName is the name in the sidecar's certificate. The host of the address if omitted.
	ServerName string `json:"serverName,omitempty"`
	// CertFile and KeyFile are a client certificate, in PEM.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
}

func readConfiguration(from io.Reader) (*Configuration, error) {
	if from == nil {
		return nil, fmt.Errorf("plugin %s has no configuration: name it in the file of --admission-control-config-file", PluginName)
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	var configuration Configuration
	if err := yaml.UnmarshalStrict(text, &configuration); err != nil {
		return nil, fmt.Errorf("configuration of plugin %s: %w", PluginName, err)
	}
	if configuration.Timeout.Duration == 0 {
		configuration.Timeout.Duration = defaultTimeout
	}
	if configuration.MaxHolds == 0 {
		configuration.MaxHolds = defaultMaxHolds
	}
	if configuration.FailurePolicy == "" {
		configuration.FailurePolicy = admissionregistrationv1.Fail
	}
	if configuration.ReinvocationPolicy == "" {
		configuration.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	}
	if err := configuration.validate(); err != nil {
		return nil, fmt.Errorf("configuration of plugin %s: %w", PluginName, err)
	}
	return &configuration, nil
}

func (c *Configuration) validate() error {
	var problems []error
	problem := func(format string, arguments ...any) {
		problems = append(problems, fmt.Errorf(format, arguments...))
	}
	if c.APIVersion != ConfigurationVersion || c.Kind != ConfigurationKind {
		problem("apiVersion and kind must be %s and %s, not %q and %q", ConfigurationVersion, ConfigurationKind, c.APIVersion, c.Kind)
	}
	path, isSocket := strings.CutPrefix(c.Address, "unix://")
	switch {
	case c.Address == "":
		problem("address is missing: unix:// and a path, or HOST:PORT")
	case isSocket && !filepath.IsAbs(path):
		problem("address %q: the path of a socket must be absolute", c.Address)
	case isSocket && c.TLS != nil:
		problem("tls is for HOST:PORT; a unix socket has none")
	case !isSocket && c.TLS == nil:
		problem("address %q needs tls; only a unix socket goes without", c.Address)
	case !isSocket:
		host, port, err := net.SplitHostPort(c.Address)
		if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 || host == "" || strings.Contains(host, "/") {
			problem("address %q: write unix:// and a path, or HOST:PORT", c.Address)
		}
	}
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		problem("tls.certFile and tls.keyFile go together")
	}
	if c.Timeout.Duration < 0 || c.Timeout.Duration > maxTimeout {
		problem("timeout %s must be more than 0 and at most %s", c.Timeout.Duration, maxTimeout)
	}
	if policy := c.FailurePolicy; policy != admissionregistrationv1.Fail && policy != admissionregistrationv1.Ignore {
		problem("failurePolicy must be Fail or Ignore, not %q", policy)
	}
	if c.MaxHolds < 0 {
		problem("maxHolds %d must be more than 0", c.MaxHolds)
	}
	switch c.ReinvocationPolicy {
	case admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy:
	default:
		problem("reinvocationPolicy must be Never or IfNeeded, not %q", c.ReinvocationPolicy)
	}
	for n, rule := range c.Rules {
		if err := validateRule(rule); err != nil {
			problem("rules[%d]: %w", n, err)
		}
	}
	return errors.Join(problems...)
}

var (
	versionPattern  = regexp.MustCompile(`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`)
	groupPattern    = regexp.MustCompile(`^(\*|[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`)
	resourcePattern = regexp.MustCompile(`^(\*|[a-z0-9][-.a-z0-9]*)(/(\*|[a-z0-9][-a-z0-9]*))?$`)
)

// validateRule refuses what could never match, as kube-apiserver does with the rules of a webhook.
func validateRule(rule admissionregistrationv1.RuleWithOperations) error {
	operations := make([]string, 0, len(rule.Operations))
	for _, operation := range rule.Operations {
		switch operation {
		case "*", admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect:
			operations = append(operations, string(operation))
		default:
			return fmt.Errorf("operations: %q is not one of CREATE, UPDATE, DELETE, CONNECT, *", operation)
		}
	}
	for _, list := range []struct {
		name    string
		values  []string
		pattern *regexp.Regexp
	}{
		{"operations", operations, nil}, {"apiGroups", rule.APIGroups, groupPattern},
		{"apiVersions", rule.APIVersions, versionPattern}, {"resources", rule.Resources, resourcePattern},
	} {
		if len(list.values) == 0 {
			return fmt.Errorf("%s is missing; '*' is any", list.name)
		}
		if len(list.values) > 1 && list.name != "resources" && slices.Contains(list.values, "*") {
			return fmt.Errorf("%s: '*' must be alone", list.name)
		}
		for _, value := range list.values {
			if list.pattern != nil && !list.pattern.MatchString(value) {
				return fmt.Errorf("%s: %q matches nothing", list.name, value)
			}
		}
	}
	if scope := rule.Scope; scope != nil {
		switch *scope {
		case admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope, admissionregistrationv1.AllScopes:
		default:
			return fmt.Errorf("scope must be Cluster, Namespaced or *, not %q", *scope)
		}
	}
	return nil
}

func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls.caFile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls.caFile %s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("tls.certFile and tls.keyFile: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &certificate, err
		}
	}
	return config, nil
}
