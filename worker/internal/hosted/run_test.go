// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/worker/internal/runner"
)

func TestFlags(t *testing.T) {
	for args, fault := range map[string]string{
		"--provider=kubeconfig":                         "",
		"--provider=file --provider-dir=d":              "",
		"--provider=cluster-api":                        "",
		"--provider=cluster-inventory":                  "",
		"--provider=cluster-api --provider-selector=a!": `--provider-selector "a!" is not valid`,
		"--provider=cluster-api --provider-namespace=fleet --provider-selector=a=b,c": "",
		"--provider=cluster-inventory --provider-namespace=Fleet":                     `--provider-namespace "Fleet" is not valid`,
		"--provider=kubeconfig --provider-namespace=fleet":                            "without --provider=cluster-api or cluster-inventory",
		"--provider=file --provider-dir=d --provider-selector=a":                      "without --provider=cluster-api or cluster-inventory",
		"--provider=cluster-api --provider-dir=d":                                     "without --provider=file",
		"--provider=file": "--provider-dir is required",
		"--provider=kind": "want kubeconfig, cluster-api, cluster-inventory or file",
		"--cluster-id=east --provider-namespace=fleet": "without --provider=cluster-api or cluster-inventory",
	} {
		_, _, err := parse(t, args)
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s gives %v, want %q", args, err, fault)
		}
	}
}

func parse(t *testing.T, args string) (*Flags, *runner.Options, error) {
	t.Helper()
	f, o := &Flags{}, &runner.Options{}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Bind(flags)
	f.Bind(flags)
	must.Succeed(t, flags.Parse(strings.Fields(args)))
	return f, o, f.Validate(o)
}

// TestNamespacesOfObjects: credentials of Cluster API are beside its Clusters, tokens of ClusterProfiles in the worker's namespace.
func TestNamespacesOfObjects(t *testing.T) {
	for args, want := range map[string]string{
		"--provider=cluster-api":                                                         "Cluster atoll-system atoll-system",
		"--provider=cluster-api --provider-namespace=fleet":                              "Cluster fleet fleet",
		"--provider=cluster-inventory --provider-namespace=fleet --namespace=consumer":   "ClusterProfile fleet consumer",
		"--provider=cluster-inventory --provider-selector=env=prod --namespace=consumer": "ClusterProfile consumer consumer env=prod",
	} {
		f, o, err := parse(t, args)
		must.Succeed(t, err)
		p, err := f.objects(&rest.Config{}, o, testlog.New(t))
		must.Succeed(t, err)
		if got := strings.TrimSpace(strings.Join([]string{p.kind.Kind, p.Namespace, p.Secrets, p.Selector.String()}, " ")); got != want {
			t.Errorf("%s gives %q, want %q", args, got, want)
		}
	}
}
