// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

func TestFlagsAreChecked(t *testing.T) {
	tests := map[string]struct{ args, want string }{
		"no cluster id":    {"", "--cluster-id is required"},
		"bad cluster id":   {"--cluster-id=East_1", `--cluster-id "East_1" is not valid`},
		"long cluster id":  {"--cluster-id=a123456789012345678901234567890", "is not valid"},
		"hub without port": {"--cluster-id=east --hub=hub", `--hub: "hub" is not valid`},
		"hub without tls":  {"--cluster-id=east --hub=hub:8443 --tls-cert-file=c", "--hub needs --tls-cert-file"},
		"token and files": {"--cluster-id=east --hub=hub:8443 --tls-cert-file=c --tls-key-file=k --tls-ca-file=a --token-file=t",
			`--token-file "t" is not`},
		"token, no hub":     {"--cluster-id=east --token-file=t", `--token-file "t" is not valid without --hub`},
		"directory, no hub": {"--cluster-id=east --identity-dir=d", `--identity-dir "d" is not valid without --hub`},
		"all at once":       {"--hub=hub --namespace=", "--namespace is required"},
		"queue":             {"--cluster-id=east --queue-capacity=0", "--queue-capacity 0 is not valid"},
		"records":           {"--cluster-id=east --history-records=0", "--history-records 0 is not valid"},
		"retention":         {"--cluster-id=east --history-retention=-1h", "--history-retention -1h0m0s is not valid"},
		"peers without tls": {"--cluster-id=east --peer-listen=:1 --peer-address=a:1", "--peer-listen needs --tls-cert-file"},
		"peers nowhere":     {"--cluster-id=east --peer-listen=:1", `--peer-address "" is not valid`},
		"log level":         {"--cluster-id=east --log-level=loud", "--log-level"},
		"kubeconfig":        {"--cluster-id=east --kubeconfig=/does/not/exist", "--kubeconfig"},
		"unknown":           {"--cluster=east", "there is no flag --cluster of atoll-worker; did you mean --cluster-id?"},
		"argument":          {"--cluster-id=east now", "takes no arguments"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.SetArgs(strings.Fields(tt.args))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q answers %v, want %q", tt.args, err, tt.want)
			}
		})
	}
}
