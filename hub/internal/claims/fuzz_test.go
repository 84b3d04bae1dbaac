// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/store"
)

// away is a link without workers.
type away struct{}

func (away) Dispatch(context.Context, string, *federationv1.Dispatch) (*federationv1.Answer, error) {
	return nil, calls.ErrNotConnected
}

// Whatever the ledger has for a key, every call about it returns something that can be shown or an error: a damaged record fails
// no other call.
func FuzzRecord(f *testing.F) {
	request := &sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "demo", ClaimKey: "k"}
	ended := sketch(request, sandboxv1.Phase_ENDED)
	for _, s := range []ledger.State{ledger.Pending, ledger.Returned, ledger.Refused, ledger.Ended, "odd"} {
		value, err := json.Marshal(ledger.Record{
			Request: ledger.Marshal(request), Cluster: "east", Pool: "pool", Attempt: 1, State: s, SandboxID: "01x-east", Unwaited: true,
			Deadline: time.Now(), ExpireAt: time.Now(), Terminal: ledger.Marshal(ended), Decision: ledger.Marshal(&sandboxv1.Decision{Reason: "x"}),
		})
		must.Succeed(f, err)
		f.Add(value, []byte(`{"keyHash":"x","ended":"AAAA"}`))
	}
	f.Add([]byte(`{"request":"//8=","state":"ended","terminal":"AA=="}`), []byte(`{`))
	f.Add([]byte(`{"state":"pending","attempt":-1,"createdAt":"0000-01-01T00:00:00Z","cluster":"\u0000"}`), []byte(``))
	f.Add([]byte(`null`), []byte(`null`))
	registry := fleet.NewRegistry(workertest.OpenStore(f, "registry"))
	view, err := fleet.New(f.Context(), fleet.Options{Clock: clock.RealClock{}, Registry: registry})
	must.Succeed(f, err)
	file := workertest.OpenStore(f, "claims")
	f.Fuzz(func(t *testing.T, claim, id []byte) {
		service := New(Options{Fleet: view, Dispatcher: away{}, Store: file})
		defer service.Close()
		ctx := t.Context()
		hash := ledger.KeyHash("", "default", "k")
		puts := []store.Put{{Key: ledger.ClaimPrefix + hash, Value: claim}, {Key: ledger.IDPrefix + "01x-east", Value: id}}
		_, err = file.Commit(ctx, store.Txn{Puts: puts})
		must.Succeed(t, err)
		answers := []proto.Message{}
		shown, err := service.GetClaim(ctx, &sandboxv1.GetClaimRequest{ClaimKey: "k"})
		answers = append(answers, shown)
		if err == nil {
			soon := proto.CloneOf(request)
			soon.Wait = sandboxv1.CreateSandboxRequest_NONE
			// A sandbox that was returned once is looked up for as long as the caller waits.
			patience, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			created, _ := service.Create(patience, soon)
			canceled, _ := service.CancelClaim(ctx, &sandboxv1.CancelClaimRequest{ClaimKey: "k"})
			answers = append(answers, created, canceled)
		}
		service.count(ctx)
		if _, err := service.ledger.Ended(ctx, "01x-east"); err != nil && !strings.Contains(err.Error(), "01x-east") &&
			!strings.Contains(err.Error(), "terminal record") {
			t.Fatalf("the error does not say what is damaged by this: %v", err)
		}
		for _, a := range answers {
			if _, err := protojson.Marshal(a); err != nil {
				t.Fatalf("an answer cannot be shown: %v", err)
			}
		}
	})
}
