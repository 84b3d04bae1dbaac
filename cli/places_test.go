// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/doctor"
	"navix.sh/atoll/pkg/verify"
)

// kubeconfig writes a file with contexts, the first of which is the current one.
func kubeconfig(t *testing.T, contexts ...string) string {
	t.Helper()
	text := "apiVersion: v1\nkind: Config\ncurrent-context: " + contexts[0] + "\nusers: [{name: me, user: {}}]\nclusters:\n"
	for _, c := range contexts {
		text += fmt.Sprintf("- {name: %s, cluster: {server: \"https://%s.example\"}}\n", c, c)
	}
	text += "contexts:\n"
	for _, c := range contexts {
		text += fmt.Sprintf("- {name: %s, context: {cluster: %s, user: me}}\n", c, c)
	}
	path := filepath.Join(t.TempDir(), "config")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPlaces(t *testing.T) {
	both, other := kubeconfig(t, "kind-hub", "kind-worker-a"), kubeconfig(t, "west")
	t.Setenv("KUBECONFIG", both)
	for name, tc := range map[string]struct {
		places places
		want   string // id, context and server of each, or the error
	}{
		"contexts of KUBECONFIG": {places{contexts: []string{"east=kind-hub", "kind-worker-a"}},
			"east kind-hub https://kind-hub.example; kind-worker-a kind-worker-a https://kind-worker-a.example"},
		"a file each": {places{kubeconfigs: []string{"east=" + both, other}},
			"east kind-hub https://kind-hub.example; west west https://west.example"},
		"contexts of given files": {places{kubeconfigs: []string{both, other}, contexts: []string{"north=west"}},
			"north west https://west.example"},
		"nothing": {places{}, ""},
		"one twice": {places{contexts: []string{"kind-hub", "kind-hub"}},
			`error: cluster "kind-hub" is named twice; tell them apart with ID=CONTEXT`},
		"no such context": {places{contexts: []string{"east=nope"}},
			`error: finding the cluster of context "nope": context "nope" does not exist`},
		"ids in the wrong place": {places{kubeconfigs: []string{"east=" + both}, contexts: []string{"x"}},
			"error: --kubeconfig east=" + both + ": with --context, ids go there"},
	} {
		t.Run(name, func(t *testing.T) {
			sites, err := tc.places.sites()
			var got []string
			for _, s := range sites {
				got = append(got, s.id+" "+s.context+" "+s.config.Host)
			}
			if err != nil {
				got = []string{"error: " + err.Error()}
			}
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), tc.want)
			}
		})
	}
	if err := (&places{noHub: true}).with(t.Context(), &app{}, nil); err == nil {
		t.Error("looked nowhere without a word")
	}
	for given, want := range map[string]string{
		"east=kind-east": "east|kind-east", "kind-east": "|kind-east", "http://h/?a=b": "|http://h/?a=b", "/a=b": "|/a=b",
	} {
		id, value := cutName(given)
		if id+"|"+value != want {
			t.Errorf("%q reads as %q and %q, want %s", given, id, value, want)
		}
	}
}

func TestPrintResult(t *testing.T) {
	result := verify.Result{Looks: 3, Notes: []string{"no metrics were read: I10 is not checked"}, Blind: []string{"hub: connection refused"},
		Findings: []verify.Finding{{Invariant: "I8", Cluster: "east", Object: "lease atoll-worker", Wrong: "no one holds it",
			Expected: "a worker to hold it"}}}
	show := func(output string, r verify.Result) string {
		var b strings.Builder
		if err := printResult(&b, output, r); err != nil {
			return err.Error()
		}
		return b.String()
	}
	for name, tc := range map[string]struct{ got, want string }{
		"table": {show("table", result), `I8  east, lease atoll-worker
    no one holds it
    expected a worker to hold it
could not look at hub: connection refused
note: no metrics were read: I10 is not checked
1 thing is wrong (3 looks)
`},
		"json": {show("json", result), `{
  "findings": [
    {
      "invariant": "I8",
      "cluster": "east",
      "object": "lease atoll-worker",
      "wrong": "no one holds it",
      "expected": "a worker to hold it"
    }
  ],
  "notes": [
    "no metrics were read: I10 is not checked"
  ],
  "notLookedAt": [
    "hub: connection refused"
  ],
  "looks": 3
}
`},
		"clean": {show("table", verify.Result{Looks: 2}), "nothing is wrong (2 looks)\n"},
		"blind": {show("table", verify.Result{Looks: 2, Blind: []string{"hub: gone"}}),
			"could not look at hub: gone\nnothing is wrong in what could be looked at (2 looks)\n"},
		"name": {show("name", result), `--output "name" is not valid here, want table, json or yaml`},
	} {
		if tc.got != tc.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, tc.got, tc.want)
		}
	}
}

func TestReport(t *testing.T) {
	if got := looked(&doctor.Snapshot{Snapshot: &verify.Snapshot{Hub: &verify.Hub{}}}); !strings.Contains(got, "as far as the hub knows") {
		t.Errorf("the hub alone: %q", got)
	}
	for name, tc := range map[string]struct {
		seen *doctor.Snapshot
		want string
		code error
	}{
		"well": {&doctor.Snapshot{Snapshot: &verify.Snapshot{}}, "all is well (no hub and 0 clusters were looked at)\n", nil},
		"ill": {&doctor.Snapshot{Snapshot: &verify.Snapshot{Blind: []verify.Blind{{What: "cluster east", Why: "timeout"}}}},
			"warning   cluster east: cannot be looked at from here: timeout (APIServerUnreachable)\n          → in cluster east: kubectl get " +
				"--raw /readyz?verbose\n", exitFound},
		"blind": {&doctor.Snapshot{Snapshot: &verify.Snapshot{Blind: []verify.Blind{{What: "metrics x", Why: "timeout"}}}},
			"info      metrics x: timeout (NotTold)\n          → check the address\n", exitBlind},
		"unread": {&doctor.Snapshot{Snapshot: &verify.Snapshot{}, Sites: map[string]*doctor.Site{"east": {
			Unread: []doctor.Unread{{What: "leases: forbidden"}}}}},
			"info      east, API server: leases: forbidden (NotTold)\n          → ask with the rights of a cluster administrator\n", exitBlind},
	} {
		tc.seen.Now = time.Unix(0, 0)
		var b strings.Builder
		if err := report(&b, "table", tc.seen); b.String() != tc.want || !errors.Is(err, tc.code) {
			t.Errorf("%s:\n%s%v\nwant:\n%s%v", name, b.String(), err, tc.want, tc.code)
		}
	}
}
