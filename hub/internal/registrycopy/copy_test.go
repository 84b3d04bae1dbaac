// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

var errAway = errors.New("away")

// place is a Place that can be away.
type place struct {
	document []byte
	away     bool
	writes   int
}

func (p *place) String() string { return "elsewhere" }

func (p *place) Read(context.Context) ([]byte, error) {
	if p.away {
		return nil, errAway
	}
	if p.document == nil {
		return nil, ErrNone
	}
	return p.document, nil
}

func (p *place) Write(_ context.Context, document []byte) error {
	if p.away {
		return errAway
	}
	p.document, p.writes = document, p.writes+1
	return nil
}

// disk is a hub's volume and its copy elsewhere.
type disk struct {
	*testing.T
	place            *place
	claims, registry *store.Bolt
}

func newDisk(t *testing.T) *disk {
	d := &disk{T: t, place: &place{}}
	d.lose()
	return d
}

// lose is a new volume.
func (d *disk) lose() {
	var err1, err2 error
	dir := d.TempDir()
	d.claims, err1 = hubstate.Open(dir, hubstate.Claims)
	d.registry, err2 = hubstate.Open(dir, hubstate.Registry)
	must.Succeed(d, errors.Join(err1, err2))
	claims, registry := d.claims, d.registry
	d.Cleanup(func() { _ = errors.Join(claims.Close(), registry.Close()) })
}

func (d *disk) open() (*Copy, Registry) {
	d.Helper()
	w, err := Open(d.Context(), d.place, d.claims, d.registry, logr.Discard())
	must.Succeed(d, err)
	guard := w.Guard(fleet.NewRegistry(d.registry))
	_, err = guard.Load(d.Context())
	must.Succeed(d, err)
	return w, guard
}

func (d *disk) text() string {
	d.Helper()
	identity, err1 := hubstate.LoadIdentity(d.Context(), d.registry)
	records, err2 := hubstate.LoadRecords(d.Context(), d.registry)
	must.Succeed(d, errors.Join(err1, err2))
	out := "none"
	if identity != nil {
		out = fmt.Sprintf("%s/%d", identity.ID, identity.Epoch)
	}
	for _, r := range records {
		out += fmt.Sprintf(" %s=%s", r.ClusterID, r.UID)
		for _, f := range r.Forgotten {
			out += "-" + f.UID
		}
	}
	return out
}

func (d *disk) want(want string) {
	d.Helper()
	if got := d.text(); got != want {
		d.Errorf("the registry has %q, want %q", got, want)
	}
}

// begin is a hub's life in which east registers and west is forgotten.
func (d *disk) begin(id hubstate.Identity) {
	d.Helper()
	w, guard := d.open()
	err := errors.Join(
		hubstate.SaveLedger(d.Context(), d.claims, hubstate.Ledger{Identity: id}), hubstate.SaveIdentity(d.Context(), d.registry, id),
		guard.Save(d.Context(), hubstate.Record{ClusterID: "east", UID: "e"}),
		guard.Save(d.Context(), hubstate.Record{ClusterID: "west", UID: "w"}),
		guard.Save(d.Context(), hubstate.Record{ClusterID: "west", Forgotten: []hubstate.Forgotten{{UID: "w"}}}),
	)
	must.Succeed(d, err)
	w.Sync(d.Context())
}

func TestI2I4ALostRegistryIsMadeOfItsCopy(t *testing.T) {
	d := newDisk(t)
	d.begin(hubstate.Identity{ID: "a", Epoch: 2})
	d.lose()
	d.open()
	d.want("a/2 east=e west=-w")
}

// TestARevocationSurvivesTheVolume; because the keys that were issued do not.
func TestARevocationSurvivesTheVolume(t *testing.T) {
	d, at := newDisk(t), time.Unix(1_800_000_000, 0).UTC()
	d.begin(hubstate.Identity{ID: "a"})
	_, guard := d.open()
	must.Succeed(t, guard.Save(t.Context(), hubstate.Record{ClusterID: "east", UID: "e", RevokedAt: at}))
	d.lose()
	d.open()
	if r, found, err := hubstate.LoadRecord(t.Context(), d.registry, "east"); err != nil || !found || !r.RevokedAt.Equal(at) {
		t.Errorf("the registry has %+v, %t, %v", r, found, err)
	}
}

// TestWhatIsRecordedOfAnInvitedClusterSurvivesTheVolume before the cluster has registered; because its certificate does.
func TestWhatIsRecordedOfAnInvitedClusterSurvivesTheVolume(t *testing.T) {
	at := time.Unix(1_800_000_000, 0).UTC()
	for name, of := range map[string]hubstate.Record{
		"revoked keys": {ClusterID: "north", RefusedKeys: []string{"k"}},
		"revoked":      {ClusterID: "north", RevokedAt: at},
		"scope":        {ClusterID: "north", Scope: &hubstate.Scope{Teams: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			d.begin(hubstate.Identity{ID: "a"})
			_, guard := d.open()
			must.Succeed(t, guard.Save(t.Context(), of))
			d.lose()
			d.open()
			r, found, err := hubstate.LoadRecord(t.Context(), d.registry, "north")
			if r.Revision = 0; err != nil || !found || !reflect.DeepEqual(r, of) {
				t.Errorf("the registry has %+v, %t, %v, want %+v", r, found, err, of)
			}
		})
	}
}

// TestProofsSurviveTheVolume, also beside a backup from before them.
func TestProofsSurviveTheVolume(t *testing.T) {
	d, proofs := newDisk(t), hubstate.Proofs{Secrets: []hubstate.ProofSecret{hubstate.NewProofSecret()}}
	must.Succeed(t, hubstate.SaveProofs(t.Context(), d.registry, proofs))
	d.begin(hubstate.Identity{ID: "a"})
	for range 2 {
		d.lose()
		d.open()
		if got, err := hubstate.LoadProofs(t.Context(), d.registry); err != nil || !got.Equal(proofs) {
			t.Errorf("the registry has %+v: %v", got, err)
		}
	}
}

func TestAFirstHubIsNew(t *testing.T) {
	d := newDisk(t)
	d.open()
	d.want("none")
}

// TestALostRegistryBesideItsLedgerIsNoLostLedger: package recovery pairs the two.
func TestALostRegistryBesideItsLedgerIsNoLostLedger(t *testing.T) {
	for epoch, want := range map[int32]string{2: "none east=e west=-w", 1: "a/2 east=e west=-w"} {
		d := newDisk(t)
		d.begin(hubstate.Identity{ID: "a", Epoch: 2})
		d.lose()
		must.Succeed(t, hubstate.SaveLedger(t.Context(), d.claims, hubstate.Ledger{Identity: hubstate.Identity{ID: "b", Epoch: epoch}}))
		d.open()
		d.want(want)
	}
}

// TestABackupOnANewVolume has the clusters that registered since.
func TestABackupOnANewVolume(t *testing.T) {
	d := newDisk(t)
	d.begin(hubstate.Identity{ID: "a"})
	d.lose()
	id := hubstate.Identity{ID: "a"}
	err := errors.Join(
		hubstate.SaveLedger(t.Context(), d.claims, hubstate.Ledger{Identity: id, Restored: true}),
		hubstate.SaveIdentity(t.Context(), d.registry, id),
		hubstate.SaveRecord(t.Context(), d.registry, hubstate.Record{ClusterID: "west", UID: "w"}),
	)
	must.Succeed(t, err)
	d.open()
	d.want("a/0 east=e west=-w")
}

// TestABackupKeepsWhatTheCopyLacks: a drain goes on, at each start until the hub has recovered.
func TestABackupKeepsWhatTheCopyLacks(t *testing.T) {
	d := newDisk(t)
	d.begin(hubstate.Identity{ID: "a"})
	d.lose()
	id, want := hubstate.Identity{ID: "a"}, fullRecord("east", "e")
	must.Succeed(t, errors.Join(
		hubstate.SaveLedger(t.Context(), d.claims, hubstate.Ledger{Identity: id, Restored: true}),
		hubstate.SaveIdentity(t.Context(), d.registry, id), hubstate.SaveRecord(t.Context(), d.registry, want),
	))
	for range 2 {
		d.open()
		got, _, err := hubstate.LoadRecord(t.Context(), d.registry, "east")
		must.Succeed(t, err)
		if got.Revision = 0; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

// TestAnIntactRegistryIsRight, whatever its copy has; because the copy may come from an old CA's backup.
func TestAnIntactRegistryIsRight(t *testing.T) {
	d := newDisk(t)
	d.begin(hubstate.Identity{ID: "a"})
	d.place.document = []byte(`{"format":1,"ledger":{"id":"old","epoch":7},"clusters":[{"clusterID":"west","uid":"w"}]}`)
	w, _ := d.open()
	d.want("a/0 east=e west=-w")
	w.Sync(t.Context())
	if strings.Contains(string(d.place.document), "old") {
		t.Errorf("the copy was not put right: %s", d.place.document)
	}
}

// A hub whose volume is empty cannot know whether it is new, if the copy cannot be read.
func TestAnEmptyHubWithoutTheCopyDoesNotStart(t *testing.T) {
	for name, spoil := range map[string]func(*place){
		"away":    func(p *place) { p.away = true },
		"damaged": func(p *place) { p.document = []byte("{") },
		"newer":   func(p *place) { p.document = []byte(`{"format":2}`) },
	} {
		d := newDisk(t)
		d.begin(hubstate.Identity{ID: "a"})
		spoil(d.place)
		d.open() // with its files it starts
		d.lose()
		if _, err := Open(t.Context(), d.place, d.claims, d.registry, logr.Discard()); err == nil {
			t.Errorf("%s: it is new", name)
		}
		d.want("none")
	}
}

// TestNoClusterRegistersWithoutTheCopy; changes that concern no name do not need the copy.
func TestNoClusterRegistersWithoutTheCopy(t *testing.T) {
	d := newDisk(t)
	d.begin(hubstate.Identity{ID: "a"})
	w, guard := d.open()
	w.Sync(t.Context())
	writes := d.place.writes
	d.place.away = true
	if err := guard.Save(t.Context(), hubstate.Record{ClusterID: "east", UID: "e", Incarnation: 4}); err != nil {
		t.Errorf("a new incarnation: %v", err)
	}
	north := hubstate.Record{ClusterID: "north", UID: "n"}
	if err := guard.Save(t.Context(), north); !errors.Is(err, errAway) {
		t.Errorf("a new cluster: %v", err)
	}
	d.want("a/0 east=e west=-w")
	d.place.away = false
	if err := guard.Save(t.Context(), north); err != nil || !strings.Contains(string(d.place.document), "north") {
		t.Errorf("with the place back: %v", err)
	}
	d.want("a/0 east=e north=n west=-w")
	w.Sync(t.Context())
	if d.place.writes != writes+1 {
		t.Errorf("%d writes for one registration", d.place.writes-writes)
	}
}

// TestACopyThatWasEmptiedIsWrittenAgain, as after helm upgrade --force.
func TestACopyThatWasEmptiedIsWrittenAgain(t *testing.T) {
	d := newDisk(t)
	d.begin(hubstate.Identity{ID: "a"})
	w, _ := d.open()
	w.Sync(t.Context())
	d.place.document = nil
	w.verify(t.Context())
	w.Sync(t.Context())
	if !strings.Contains(string(d.place.document), "east") {
		t.Errorf("the copy says %q", d.place.document)
	}
}

func TestFile(t *testing.T) {
	file := File(filepath.Join(t.TempDir(), "copy.json"))
	if _, err := file.Read(t.Context()); !errors.Is(err, ErrNone) || file.Usable() != nil {
		t.Errorf("before: %v, %v", err, file.Usable())
	}
	for _, document := range []string{"a", "b"} {
		must.Succeed(t, file.Write(t.Context(), []byte(document)))
		if got, err := file.Read(t.Context()); err != nil || string(got) != document {
			t.Errorf("%q: %v", got, err)
		}
	}
	if is, err := os.Stat(string(file)); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("who may read it: %v, %v", is.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(string(file))); err != nil || len(left) != 1 {
		t.Errorf("left %v: %v", left, err)
	}
	if File(filepath.Join(string(file), "below")).Usable() == nil {
		t.Error("a folder that is none can be used")
	}
}
