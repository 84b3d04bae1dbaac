// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

func TestDecideHello(t *testing.T) {
	registered := func(hello, last streamID, alive bool) helloFacts {
		return helloFacts{protocol: 1, uid: "u", registeredUID: "u", hello: hello, last: last, alive: alive}
	}
	cases := map[string]struct {
		facts helloFacts
		want  Refusal
	}{
		"first of a name":  {helloFacts{protocol: 1, uid: "u", hello: streamID{"a", 0, 1}}, None},
		"another protocol": {helloFacts{protocol: 2, uid: "u", hello: streamID{"a", 0, 1}}, ProtocolUnsupported},
		"no uid":           {helloFacts{protocol: 1, hello: streamID{"a", 0, 1}}, IdentityMismatch},
		"the name is taken": {helloFacts{protocol: 1, uid: "v", registeredUID: "u", hello: streamID{"a", 9, 1}},
			IdentityMismatch},
		"quarantined": {helloFacts{protocol: 1, uid: "u", registeredUID: "u", quarantined: true,
			hello: streamID{"a", 9, 1}}, RefusedQuarantined},
		"taken and quarantined":                 {helloFacts{protocol: 1, uid: "v", registeredUID: "u", quarantined: true}, IdentityMismatch},
		"forgotten":                             {helloFacts{protocol: 1, uid: "u", registeredUID: "u", forgotten: true}, RefusedForgotten},
		"the name is revoked, another uid":      {helloFacts{protocol: 1, uid: "v", registeredUID: "u", revoked: true}, RefusedForgotten},
		"the certificate is revoked":            {helloFacts{protocol: 1, uid: "u", keyRevoked: true, revoked: true}, RefusedRevoked},
		"reconnect":                             {registered(streamID{"a", 1, 2}, streamID{"a", 1, 1}, true), None},
		"late attempt of the same term":         {registered(streamID{"a", 1, 1}, streamID{"a", 1, 2}, false), OlderStream},
		"the same attempt again":                {registered(streamID{"a", 1, 2}, streamID{"a", 1, 2}, true), OlderStream},
		"new leader":                            {registered(streamID{"b", 2, 1}, streamID{"a", 1, 7}, true), None},
		"old leader while the new one is well":  {registered(streamID{"a", 1, 8}, streamID{"b", 2, 1}, true), OlderStream},
		"same incarnation, other term, alive":   {registered(streamID{"b", 2, 1}, streamID{"a", 2, 1}, true), OlderStream},
		"worker that lost its state, none else": {registered(streamID{"b", 0, 1}, streamID{"a", 7, 1}, false), None},
	}
	for name, c := range cases {
		if got := decideHello(c.facts); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDecideRelayed(t *testing.T) {
	relayed := func(stream, last streamID, highest uint64) relayedFacts {
		return relayedFacts{uid: "u", registeredUID: "u", stream: stream, last: last, highest: highest, attached: true}
	}
	direct := func(f relayedFacts) relayedFacts { f.direct = true; return f }
	ended := func(f relayedFacts) relayedFacts { f.attached = false; return f }
	cases := map[string]struct {
		facts relayedFacts
		want  Refusal
	}{
		"registered at a peer alone":       {relayedFacts{uid: "u", unknown: true, stream: streamID{"a", 1, 1}}, None},
		"the name was forgotten":           {relayedFacts{uid: "u", stream: streamID{"a", 1, 1}}, RefusedForgotten},
		"the cluster was forgotten":        {relayedFacts{uid: "u", registeredUID: "u", forgotten: true}, RefusedForgotten},
		"forgotten, and not known":         {relayedFacts{uid: "u", unknown: true, forgotten: true}, RefusedForgotten},
		"no uid":                           {relayedFacts{unknown: true, stream: streamID{"a", 1, 1}}, IdentityMismatch},
		"no uid for a registered name":     {relayedFacts{registeredUID: "u", stream: streamID{"a", 1, 1}}, IdentityMismatch},
		"another uid":                      {relayedFacts{uid: "v", registeredUID: "u", stream: streamID{"a", 9, 1}}, IdentityMismatch},
		"quarantined":                      {relayedFacts{uid: "u", registeredUID: "u", quarantined: true}, RefusedQuarantined},
		"a later stream":                   {relayed(streamID{"a", 1, 2}, streamID{"a", 1, 1}, 1), None},
		"the same stream, relayed again":   {relayed(streamID{"a", 1, 2}, streamID{"a", 1, 2}, 1), None},
		"the same stream, which is direct": {direct(relayed(streamID{"a", 1, 2}, streamID{"a", 1, 2}, 1)), OlderStream},
		"a later stream than the direct":   {direct(relayed(streamID{"a", 1, 3}, streamID{"a", 1, 2}, 1)), None},
		"an earlier stream":                {relayed(streamID{"a", 1, 1}, streamID{"a", 1, 2}, 1), OlderStream},
		"an earlier stream of one that ended": {ended(relayed(streamID{"a", 1, 1}, streamID{"a", 1, 2}, 1)),
			OlderStream},
		"an earlier incarnation than is known":      {ended(relayed(streamID{"b", 2, 1}, streamID{"a", 1, 2}, 3)), OlderStream},
		"the highest incarnation that is known":     {relayed(streamID{"b", 3, 1}, streamID{"a", 1, 2}, 3), None},
		"another term of the incarnation":           {relayed(streamID{"b", 1, 9}, streamID{"a", 1, 2}, 1), OlderStream},
		"another term, once the last one has ended": {ended(relayed(streamID{"b", 1, 1}, streamID{"a", 1, 2}, 1)), None},
	}
	for name, c := range cases {
		if got := decideRelayed(c.facts); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDecideDeltas(t *testing.T) {
	same := deltaFacts{known: true, acknowledgedTerm: "a", term: "a", acknowledged: segment.Order{Incarnation: 1, Sequence: 1},
		order: segment.Order{Incarnation: 1, Sequence: 1}, acknowledgedDigest: 7, digest: 7}
	if !decideDeltas(same) {
		t.Errorf("deltas are refused for %+v", same)
	}
	for name, change := range map[string]func(*deltaFacts){
		"not known":           func(f *deltaFacts) { f.known = false },
		"recovering":          func(f *deltaFacts) { f.recovering = true },
		"restored":            func(f *deltaFacts) { f.restored = true },
		"suspects":            func(f *deltaFacts) { f.suspects = true },
		"nothing reported":    func(f *deltaFacts) { f.acknowledged.Sequence, f.order.Sequence = 0, 0 },
		"another term":        func(f *deltaFacts) { f.acknowledgedTerm = "b" },
		"an earlier report":   func(f *deltaFacts) { f.order.Sequence = 2 },
		"another incarnation": func(f *deltaFacts) { f.order.Incarnation = 2 },
		"another content":     func(f *deltaFacts) { f.digest = 8 },
	} {
		f := same
		if change(&f); decideDeltas(f) {
			t.Errorf("%s: deltas are accepted for %+v", name, f)
		}
	}
}

func TestAlternations(t *testing.T) {
	for terms, want := range map[string]int{
		"": 0, "a": 0, "aaaa": 0, "ab": 0, "abc": 0, "abcdefgh": 0, // restarts and crash loops
		"aba": 1, "abab": 2, "ababa": 3, "aabbaabb": 2, "abbbbb": 0, "abcabc": 3, "aab": 0,
	} {
		var contacts []contact
		for _, term := range strings.Split(terms, "") {
			contacts = append(contacts, contact{term: term})
		}
		if got := alternations(contacts); got != want {
			t.Errorf("%s alternates %d times, want %d", terms, got, want)
		}
	}
}

func TestPersistent(t *testing.T) {
	for text, want := range map[string]int{ // small: beside another's stream
		"A": 0, "a": 1, "Aaa": 2, "bba": 1, "bbA": 0, "aBa": 2, "abab": 2,
	} {
		var contacts []contact
		for _, term := range strings.Split(text, "") {
			contacts = append(contacts, contact{term: strings.ToLower(term), beside: term == strings.ToLower(term)})
		}
		if got := persistent(contacts); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestWentBack(t *testing.T) {
	for _, c := range []struct {
		now, before uint64
		want        bool
	}{{4, 5, true}, {5, 5, false}, {6, 5, false}, {0, 5, false}, {0, 0, false}, {1, 0, false}, {1, 2, true}} {
		if got := wentBack(c.now, c.before); got != c.want {
			t.Errorf("%d after %d: %t", c.now, c.before, got)
		}
	}
}

// I5: over 30 %, and more than a handful.
func TestMassive(t *testing.T) {
	for _, c := range []struct {
		removed, of int
		want        bool
	}{
		{handful, handful, false}, {handful + 1, handful + 1, true}, {300, 1000, false}, {301, 1000, true}, {handful + 1, 1000, false},
		{0, 0, false},
	} {
		if got := massive(c.removed, c.of); got != c.want {
			t.Errorf("%d of %d: %t", c.removed, c.of, got)
		}
	}
}

func TestDraining(t *testing.T) {
	for h, want := range map[router.Health]router.Health{
		router.Fresh: router.Draining, router.Silent: router.Draining, router.Disconnected: router.Draining,
		router.Unreachable: router.Unreachable, router.Quarantined: router.Quarantined,
	} {
		if got := decideRouted(h, true); got != want {
			t.Errorf("%s and draining is %s, want %s", h, got, want)
		}
		if got := decideRouted(h, false); got != h {
			t.Errorf("%s and not draining is %s", h, got)
		}
	}
	for _, c := range []struct{ attached, draining, want bool }{{false, false, true}, {false, true, true}, {true, true, true},
		{true, false, false}} {
		if got := forgettable(c.attached, c.draining); got != c.want {
			t.Errorf("attached %t, draining %t: forgettable is %t", c.attached, c.draining, got)
		}
	}
}

func TestDecideHealth(t *testing.T) {
	const s = time.Second
	good := healthFacts{now: 1000 * s, seen: true, lastSeen: 999 * s, goodSince: 500 * s, attached: true}
	with := func(edit func(*healthFacts)) healthFacts {
		f := good
		edit(&f)
		return f
	}
	cases := map[string]struct {
		facts healthFacts
		want  router.Health
	}{
		"good":                           {good, router.Fresh},
		"14.9 s of silence":              {with(func(f *healthFacts) { f.lastSeen = f.now - 14900*time.Millisecond }), router.Fresh},
		"15 s of silence":                {with(func(f *healthFacts) { f.lastSeen = f.now - 15*s }), router.Silent},
		"39.9 s of silence":              {with(func(f *healthFacts) { f.lastSeen = f.now - 39900*time.Millisecond }), router.Silent},
		"40 s of silence":                {with(func(f *healthFacts) { f.lastSeen = f.now - 40*s }), router.Unreachable},
		"never seen":                     {healthFacts{now: s}, router.Unreachable},
		"no stream":                      {with(func(f *healthFacts) { f.attached = false }), router.Disconnected},
		"no stream, 40 s of silence":     {with(func(f *healthFacts) { f.attached, f.lastSeen = false, f.now-40*s }), router.Unreachable},
		"no receipt":                     {with(func(f *healthFacts) { f.noReceipt, f.noReceiptAt = true, f.now-9*s }), router.NoReceipt},
		"no receipt, long ago":           {with(func(f *healthFacts) { f.noReceipt, f.noReceiptAt = true, f.now-10*s }), router.Fresh},
		"back for 9 s":                   {with(func(f *healthFacts) { f.marked, f.goodSince = true, f.now-9*s }), router.Unreachable},
		"back for 10 s":                  {with(func(f *healthFacts) { f.marked, f.goodSince = true, f.now-10*s }), router.Fresh},
		"back for 10 s, then silent":     {with(func(f *healthFacts) { f.marked, f.lastSeen = true, f.now-16*s }), router.Unreachable},
		"back for 10 s, silent for 15 s": {with(func(f *healthFacts) { f.marked, f.lastSeen = true, f.now-15*s }), router.Unreachable},
		"back, and gone again":           {with(func(f *healthFacts) { f.marked, f.attached = true, false }), router.Unreachable},
		"quarantined, whatever the rest": {with(func(f *healthFacts) { f.quarantined = true }), router.Quarantined},
	}
	for name, c := range cases {
		if got := decideHealth(c.facts); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
