// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// invaded is the Env in which a worker under another cluster's name does its worst.
const invaded = "identity"

// I12: the certificate decides a worker's identity, and a name belongs to the cluster that had it first.
func TestI12_CertificateDecides(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, invaded, equally(2)...)
	e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"east"}})
	for _, in := range clusters { // the owner's word of the claim is everywhere, the hub included
		e.waitSegment(ctx, t, in, "east", "idle=1 running=1 desired=2")
	}
	before := e.known(ctx, t, "east")

	must.Succeed(t, atoll.Worker("north").Stop())
	t.Run("a name that is not the certificate's", func(t *testing.T) {
		impostor, err := atoll.WorkerAs("north", "east", "north")
		must.Succeed(t, err)
		if err := impostor.Start(ctx); err == nil {
			_ = impostor.Kill()
			t.Fatal("a worker with the certificate of north started under the name east")
		}
		wantLogged(ctx, t, impostor.LogPath(), "is a certificate of spiffe://atoll.navix.sh/cluster/north, not of --cluster-id east")
	})
	t.Run("a certificate of another cluster", func(t *testing.T) {
		impostor, err := atoll.WorkerAs("north", "east", "east")
		must.Succeed(t, err)
		must.Succeed(t, impostor.Start(ctx))
		defer func() { must.Succeed(t, impostor.Stop()) }()
		wantLogged(ctx, t, impostor.LogPath(), "IdentityMismatch")
		if after := e.known(ctx, t, "east"); after != before {
			t.Errorf("with an impostor about, the hub knows of east\n%s\nbefore it knew\n%s", after, before)
		}
	})
	must.Succeed(t, heal(ctx))
	if after := e.known(ctx, t, "east"); after != before {
		t.Errorf("after an impostor left, the hub knows of east\n%s\nbefore it knew\n%s", after, before)
	}
	// In its own cluster the impostor could do what it wanted; the rightful worker puts that in order.
	wait.For(t, patience, "north to be rid of what the impostor made", func(ctx context.Context) error {
		pods, err := e.pods(ctx, "north")
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].Labels[v1alpha1.SandboxPoolLabelKey] != e.Pool("north") {
				return errors.New(summary(pods))
			}
		}
		return wait.If(len(pods) == 2, summary(pods))
	})
	e.wantAllSegments(ctx, t)
	mustVerify(ctx, t)
}

// known is the hub's view of a cluster, without fields that change over time.
func (e *env) known(ctx context.Context, t *testing.T, id string) string {
	t.Helper()
	cluster, err := hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: id})
	must.Succeed(t, err)
	cluster.LastSeen = nil
	merged, err := e.merged(ctx)
	must.Succeed(t, err)
	segment := "no segment"
	for _, c := range merged.GetClusters() {
		if c.GetClusterId() == id {
			c.Age = nil
			segment = text(c)
		}
	}
	return text(cluster) + "\n" + segment
}

// text removes protobuf's deliberate variations in spacing.
func text(m fmt.Stringer) string { return strings.Join(strings.Fields(m.String()), " ") }

// wantLogged waits for a text in a program's log.
func wantLogged(ctx context.Context, t *testing.T, path, words string) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%q in %s", words, path), func(context.Context) error {
		log, err := os.ReadFile(path)
		without := fmt.Sprintf("a log of %d bytes without it:\n%s", len(log), tail(string(log)))
		return errors.Join(err, wait.If(strings.Contains(string(log), words), without))
	})
}

func tail(log string) string {
	const most = 2000
	return log[max(0, len(log)-most):]
}
