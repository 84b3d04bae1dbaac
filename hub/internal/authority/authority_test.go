// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/store"
)

// opened is an authority of a hub on a store.
type opened struct {
	*Authority
	t     *testing.T
	clock *clocktesting.FakeClock
	fleet *fleet.Fleet
}

func open(t *testing.T, s store.Store, at time.Time, manual bool) *opened {
	t.Helper()
	clk := clocktesting.NewFakeClock(at)
	a, err := Open(t.Context(), Options{Store: s, Clock: clk, Log: testlog.New(t), Hosts: []string{"127.0.0.1"}, Manual: manual})
	must.Succeed(t, err)
	f, err := fleet.New(t.Context(), fleet.Options{Clock: clk, Registry: fleet.NewRegistry(s)})
	must.Succeed(t, err)
	a.Serve(f)
	return &opened{a, t, clk, f}
}

func (o *opened) invite(ttl time.Duration) string {
	o.t.Helper()
	made, err := o.Invite(o.t.Context(), "east", ttl, nil, "test")
	must.Succeed(o.t, err)
	return made.GetToken()
}

func (o *opened) ask(token, id, uid string, key crypto.Signer) (*federationv1.JoinResponse, error) {
	o.t.Helper()
	csr, err := link.NewCSR(key, link.Cluster(id))
	must.Succeed(o.t, err)
	return o.Join(o.t.Context(), "192.0.2.1:5", &federationv1.JoinRequest{Token: token, ClusterId: id, ClusterUid: uid, Csr: csr})
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, _, err := link.NewKey()
	must.Succeed(t, err)
	return key
}

// TestJoinRefusals: a token that is not valid, whatever is wrong with it, has one refusal.
func TestJoinRefusals(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	key := newKey(t)
	token := o.invite(time.Hour)
	parts := strings.Split(token, ".")
	other := func(i int, with string) string {
		changed := slices.Clone(parts)
		changed[i] = with
		return strings.Join(changed, ".")
	}
	for name, c := range map[string]struct{ token, id string }{
		"no token":       {"", "east"},
		"no such token":  {other(3, "nothere1"), "east"},
		"another secret": {other(4, random(secretBytes)), "east"},
		"no secret":      {other(4, ""), "east"},
		"another name":   {token, "west"},
	} {
		if _, err := o.ask(c.token, c.id, "uid", key); err == nil || err.Error() != errToken.Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
	response, err := o.ask(token, "east", "uid", key)
	must.Succeed(t, err)
	certs, err := pki.ParseCertificates(response.GetCertificate().GetChain())
	must.Succeed(t, err)
	if who, err := link.IdentityOf(certs[0]); err != nil || who != link.Cluster("east") {
		t.Errorf("issued for %v, %v", who, err)
	}
	for name, c := range map[string]struct {
		uid string
		key crypto.Signer
		ok  bool
	}{"another key": {"uid", newKey(t), false}, "another cluster": {"other", key, false}, "again": {"uid", key, true}} {
		if _, err := o.ask(token, "east", c.uid, c.key); (err == nil) != c.ok || !c.ok && err.Error() != errToken.Error() {
			t.Errorf("used, %s: %v", name, err)
		}
	}
	late := o.invite(time.Minute)
	o.clock.Step(time.Minute)
	if _, err := o.ask(late, "east", "uid", key); err == nil || err.Error() != errToken.Error() {
		t.Errorf("expired: %v", err)
	}
	request := &federationv1.JoinRequest{Token: o.invite(time.Hour), ClusterId: "east", ClusterUid: "uid", Csr: []byte("no request")}
	if _, err := o.Join(t.Context(), "", request); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a request that is none: %v", err)
	}
}

// TestWithdrawnInvitationsAreRefused: a token that has become known opens nothing any more; those of other clusters hold.
func TestWithdrawnInvitationsAreRefused(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	token := o.invite(time.Hour)
	if open, err := o.Withdraw(t.Context(), "west"); err != nil || open != 0 {
		t.Errorf("of another cluster: %d, %v", open, err)
	}
	if open, err := o.Withdraw(t.Context(), "east"); err != nil || open != 1 {
		t.Errorf("got %d, %v", open, err)
	}
	if _, err := o.ask(token, "east", "uid", newKey(t)); err == nil || err.Error() != errToken.Error() {
		t.Errorf("withdrawn: %v", err)
	}
	_, err := o.ask(o.invite(time.Hour), "east", "uid", newKey(t))
	must.Succeed(t, err)
}

// TestAnInvitationUndoesNoLaterScope: its scope is the cluster's from its first use until an operator says another one, whether it is used
// before or after that.
func TestAnInvitationUndoesNoLaterScope(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	key, only := newKey(t), func(namespace string) *hubstate.Scope { return &hubstate.Scope{Namespaces: []string{namespace}} }
	invite := func(scope *hubstate.Scope) string {
		made, err := o.Invite(t.Context(), "east", time.Hour, scope, "test")
		must.Succeed(t, err)
		return made.GetToken()
	}
	join := func(token, want string) {
		t.Helper()
		_, err := o.ask(token, "east", "uid", key)
		must.Succeed(t, err)
		if got := o.fleet.Cluster("east").GetScope().GetNamespaces(); strings.Join(got, ",") != want {
			t.Errorf("its scope is %v, want %s", got, want)
		}
	}
	set := func(namespace string) {
		_, err := o.fleet.SetScope(t.Context(), "east", only(namespace))
		must.Succeed(t, err)
	}
	first := invite(only("first"))
	_, err := o.ask(first, "east", "uid", key)
	must.Succeed(t, err)
	_, _, refused := o.fleet.Connect(fleet.Peer{ClusterID: "east"}, &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	join(first, "first")
	set("set")
	join(first, "set")
	join(invite(only("second")), "second") // the same key, as after a response that was lost
	late := invite(only("late"))
	set("last")
	must.Succeed(t, o.DropScopes(t.Context(), "east"))
	join(late, "last")
}

// TestAJoinInFlightMeetsWhatAnOperatorSaysMeanwhile: after the invitation's use is written, and before the cluster's record has the key.
func TestAJoinInFlightMeetsWhatAnOperatorSaysMeanwhile(t *testing.T) {
	s := store.NewMemory()
	o := open(t, s, time.Now(), false)
	token := o.invite(time.Hour)
	o.opts.Keep = func(ctx context.Context) error {
		_, err := o.Withdraw(ctx, "east")
		return err
	}
	if _, err := o.ask(token, "east", "uid", newKey(t)); err == nil || err.Error() != errToken.Error() {
		t.Errorf("withdrawn: %v", err)
	}
	if r, found, err := hubstate.LoadRecord(t.Context(), s, "east"); err != nil || found {
		t.Errorf("its record is %+v, %v", r, err)
	}

	o = open(t, store.NewMemory(), time.Now(), false)
	_, _, refused := o.fleet.Connect(fleet.Peer{ClusterID: "east"}, &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	made, err := o.Invite(t.Context(), "east", time.Hour, &hubstate.Scope{Namespaces: []string{"invited"}}, "test")
	must.Succeed(t, err)
	o.opts.Keep = func(ctx context.Context) error {
		_, err := o.fleet.SetScope(ctx, "east", &hubstate.Scope{Namespaces: []string{"set"}})
		return errors.Join(err, o.DropScopes(ctx, "east"))
	}
	_, err = o.ask(made.GetToken(), "east", "uid", newKey(t))
	must.Succeed(t, err)
	if got := o.fleet.Cluster("east").GetScope().GetNamespaces(); strings.Join(got, ",") != "set" {
		t.Errorf("its scope is %v", got)
	}
}

// TestARenewalThatFailsIsNotCounted: while the hub cannot issue a certificate, asking uses up none. How often a cluster asks is bounded
// (I14).
func TestARenewalThatFailsIsNotCounted(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	by := fleet.Peer{ClusterID: "east"}
	_, _, refused := o.fleet.Connect(by, &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	away := errors.New("away")
	o.opts.Keep = func(context.Context) error { return away }
	csr, err := link.NewCSR(newKey(t), link.Cluster("east"))
	must.Succeed(t, err)
	ask := func(times int, after time.Duration, want string) {
		t.Helper()
		for i := range times {
			o.clock.Step(after)
			if got := o.Renew(t.Context(), by, "uid", csr).GetError(); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("request %d of %d is told %q, want %q", i+1, times, got, want)
			}
		}
	}
	ask(2*renewBurst, time.Second, "away")
	away = nil
	ask(renewBurst, time.Second, "")
	ask(1, time.Second, "has got certificates too often")
	ask(asksAtOnce-1, 0, "has got certificates too often")
	ask(2, 0, "has asked for certificates too often")
}

// TestARenewalInFlightEndsWithARevoke that comes before the certificate is issued.
func TestARenewalInFlightEndsWithARevoke(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	by := fleet.Peer{ClusterID: "east", Key: "key"}
	_, _, refused := o.fleet.Connect(by, &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t", Stream: 1})
	if refused != nil {
		t.Fatal(refused)
	}
	o.opts.Keep = func(ctx context.Context) error {
		_, err := o.fleet.Revoke(ctx, "east")
		return err
	}
	csr, err := link.NewCSR(newKey(t), link.Cluster("east"))
	must.Succeed(t, err)
	if got := o.Renew(t.Context(), by, "uid", csr); got.GetChain() != nil || got.GetError() != fleet.ErrRevoked.Error() {
		t.Errorf("it is told %q", got.GetError())
	}
	if !o.fleet.Cluster("east").GetRevoked() {
		t.Error("the cluster is not revoked any more")
	}
}

// TestACertificateIsRevokedBeforeItsFirstStream; because who stole the invitation may wait with it.
func TestACertificateIsRevokedBeforeItsFirstStream(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	key := newKey(t)
	_, err := o.ask(o.invite(time.Hour), "east", "uid", key)
	must.Succeed(t, err)
	hash, err := pki.KeyHash(key.Public())
	must.Succeed(t, err)
	_, err = o.fleet.Revoke(t.Context(), "east")
	must.Succeed(t, err)
	hello := &federationv1.Hello{Protocol: 1, ClusterUid: "uid", Term: "t", Stream: 1}
	if _, _, refused := o.fleet.Connect(fleet.Peer{ClusterID: "east", Key: hash}, hello); refused == nil {
		t.Error("the certificate gives a stream")
	}
	if _, err := o.fleet.Revoke(t.Context(), "west"); !errors.Is(err, fleet.ErrNoCluster) {
		t.Errorf("a cluster that never joined: %v", err)
	}
}

// TestI14InvitationsAreBounded, and those that have expired make room.
func TestI14InvitationsAreBounded(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	for range MaxInvitations {
		o.invite(time.Hour)
	}
	if _, err := o.Invite(t.Context(), "east", time.Hour, nil, ""); err == nil {
		t.Error("there is no bound")
	}
	o.clock.Step(time.Hour)
	o.invite(time.Hour)
}

// TestI11ClocksThatDifferByTenMinutes: what the hub issues is valid where the clock is early or late, and one replica whose clock differs
// accepts what another one issued.
func TestI11ClocksThatDifferByTenMinutes(t *testing.T) {
	for _, off := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		s, now := store.NewMemory(), time.Now()
		here, there := open(t, s, now, false), open(t, s, now.Add(off), false)
		key := newKey(t)
		response, err := there.ask(here.invite(time.Hour), "east", "uid", key)
		must.Succeed(t, err)
		own, err := there.Read()
		must.Succeed(t, err)
		shown, err := pki.ParseCertificates(own.Cert)
		must.Succeed(t, err)
		must.Succeed(t, link.VerifyIssued(response.GetCertificate(), key.Public(), link.Cluster("east"), shown, now))
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(response.GetCertificate().GetTrust().GetBundle())
		if _, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: "127.0.0.1"}); err != nil {
			t.Errorf("off by %s: %v", off, err)
		}
	}
}

// The hub renews its own certificate by the wall clock: a time with a monotonic reading is compared by that.
func TestTheHubsCertificateIsRenewedByTheWallClock(t *testing.T) {
	o := open(t, store.NewMemory(), time.Now(), false)
	if at := o.own.renew.String(); strings.Contains(at, " m=") {
		t.Errorf("it is renewed at %s", at)
	}
	before, err := o.Read()
	must.Succeed(t, err)
	o.clock.SetTime(o.own.renew)
	if after, err := o.Read(); err != nil || bytes.Equal(after.Cert, before.Cert) {
		t.Errorf("it is not renewed at %s: %v", o.own.renew, err)
	}
}

func TestDecideStep(t *testing.T) {
	cluster := func(id, trust, issuer string) fleet.Credential {
		return fleet.Credential{ClusterID: id, Trust: trust, Issuer: issuer, Attached: true}
	}
	away := fleet.Credential{ClusterID: "away", Trust: "old", Issuer: "old", Away: true}
	resting := fleet.Credential{ClusterID: "resting", Trust: "old", Issuer: "old"} // back in a moment
	files := fleet.Credential{ClusterID: "files", Issuer: "other", Attached: true}
	old, trusting, renewed := cluster("b", "old", "old"), cluster("a", "new", "old"), cluster("a", "new", "signer")
	for name, c := range map[string]struct {
		step     hubstate.RotationStep
		skip     bool
		early    bool
		clusters []fleet.Credential
		next     hubstate.RotationStep
		behind   string
	}{
		"stable":                {step: hubstate.Stable, clusters: []fleet.Credential{cluster("a", "old", "old")}, next: hubstate.Stable},
		"none to wait for":      {step: hubstate.Distributing, clusters: []fleet.Credential{away, files}, next: hubstate.Renewing},
		"other replicas follow": {step: hubstate.Distributing, early: true, next: hubstate.Distributing},
		"trust is missing": {step: hubstate.Distributing, clusters: []fleet.Credential{old, trusting}, next: hubstate.Distributing,
			behind: "b"},
		"one is away, and another behind": {step: hubstate.Distributing, clusters: []fleet.Credential{away, old}, next: hubstate.Distributing,
			behind: "b"},
		"a short absence": {step: hubstate.Distributing, clusters: []fleet.Credential{resting}, next: hubstate.Distributing,
			behind: "resting"},
		"an operator skips":        {step: hubstate.Distributing, skip: true, clusters: []fleet.Credential{old}, next: hubstate.Renewing},
		"all trust it":             {step: hubstate.Distributing, clusters: []fleet.Credential{trusting}, next: hubstate.Renewing},
		"a certificate of the old": {step: hubstate.Renewing, clusters: []fleet.Credential{trusting}, next: hubstate.Renewing, behind: "a"},
		"all are renewed":          {step: hubstate.Renewing, clusters: []fleet.Credential{renewed}, next: hubstate.Dropping},
		"one trusts the old as yet": {step: hubstate.Dropping, clusters: []fleet.Credential{cluster("a", "both", "signer")},
			next: hubstate.Dropping, behind: "a"},
		"the old one is dropped": {step: hubstate.Dropping, clusters: []fleet.Credential{renewed}, next: hubstate.Stable},
	} {
		next, behind := decideStep(stepFacts{step: c.step, skip: c.skip, settled: !c.early, bundle: "new", signer: "signer",
			clusters: c.clusters})
		if next != c.next || strings.Join(behind, ",") != c.behind {
			t.Errorf("%s: %q, behind %v", name, next, behind)
		}
	}
}

// TestARotationSurvivesAKillAtEachStep: a hub that starts on the state of each step signs with the right CA, trusts the right ones, and
// goes on to the next.
func TestARotationSurvivesAKillAtEachStep(t *testing.T) {
	s, now := store.NewMemory(), time.Now()
	o := open(t, s, now, false)
	before, _ := o.Trust()
	must.Succeed(t, o.Rotate(t.Context(), hubstate.Stable))
	for _, step := range []struct {
		at          hubstate.RotationStep
		old, trusts bool // the old CA signs; both are trusted
	}{{hubstate.Distributing, true, true}, {hubstate.Renewing, false, true}, {hubstate.Dropping, false, false}, {hubstate.Stable, false,
		false}} {
		o = open(t, s, now, false) // the one before is gone
		v, _ := o.now()
		trust, _ := o.Trust()
		cas, err := pki.ParseCertificates(trust.Bundle)
		must.Succeed(t, err)
		own, err := o.Read()
		must.Succeed(t, err)
		anchor, err := anchorOf(own.Cert, own.CA)
		must.Succeed(t, err)
		if v.step != step.at || (trust.Signer == before.Signer) != step.old || (len(cas) == 2) != step.trusts ||
			pki.Hash(anchor) != trust.Signer {
			t.Errorf("at %q: step %q, signer %s, %d CAs", step.at, v.step, trust.Signer, len(cas))
		}
		must.Succeed(t, o.step(t.Context(), true))
	}
}

// TestTwoReplicasShareARotation: one drives it, the other one follows, and neither makes a CA of its own.
func TestTwoReplicasShareARotation(t *testing.T) {
	s, now := store.NewMemory(), time.Now()
	one, two := open(t, s, now, false), open(t, s, now, false)
	a, _ := one.Trust()
	if b, _ := two.Trust(); a.Hash != b.Hash {
		t.Fatal("each has a CA of its own")
	}
	go two.follow(t.Context(), s)
	must.Succeed(t, one.Rotate(t.Context(), hubstate.Stable))
	for range 3 {
		must.Succeed(t, one.step(t.Context(), true))
		want, _ := one.Trust()
		wait.For(t, time.Minute, "the other replica", func(context.Context) error {
			got, _ := two.Trust()
			return wait.If(got.Hash == want.Hash && got.Signer == want.Signer, got.Signer)
		})
	}
	if after, _ := two.Trust(); after.Signer == a.Signer {
		t.Error("the CA is the old one")
	}
}
