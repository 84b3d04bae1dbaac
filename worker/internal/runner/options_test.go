// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"testing"

	"github.com/spf13/pflag"

	"navix.sh/atoll/e2e/must"
)

// A worker that makes no network policies admits no claim that denies egress, also where the flag is given and empty.
func TestAnEmptyModeMakesNoNetworkPolicies(t *testing.T) {
	for _, tt := range []struct {
		args []string
		on   bool
	}{
		{nil, false},
		{[]string{"--sandbox-network-policy="}, false},
		{[]string{"--sandbox-network-policy=off"}, false},
		{[]string{"--sandbox-network-policy=kubernetes"}, true},
		{[]string{"--sandbox-network-policy=cilium"}, true},
	} {
		var o Options
		flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		o.Bind(flags)
		must.Succeed(t, flags.Parse(tt.args))
		must.Succeed(t, o.network.validate())
		if got := o.network.on(); got != tt.on {
			t.Errorf("%q: policies are made: %t, want %t", tt.args, got, tt.on)
		}
	}
}
