// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// whoami returns to every caller the identity that the hub sees, and panics on request.
type whoami struct {
	federationv1.UnimplementedLinkServer
}

func (whoami) Attach(stream grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]) error {
	who, err := link.PeerCluster(stream.Context())
	if err != nil {
		return err
	}
	frame, err := stream.Recv()
	if err != nil {
		return err
	}
	if frame.GetHello().GetTerm() == "panic" {
		panic("on request")
	}
	return stream.Send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Welcome{Welcome: &federationv1.Welcome{ClusterId: who}}})
}

func serve(t *testing.T, files link.Files, metrics *link.Metrics) (address string) {
	t.Helper()
	server := link.NewServer(credentials(t, files), metrics, testlog.New(t))
	federationv1.RegisterLinkServer(server, whoami{})
	return testserver.ServeGRPC(t, server)
}

// ask connects once and returns the identity that the hub sees.
func ask(t *testing.T, address string, creds *link.Credentials, hello *federationv1.Hello) (who string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dial := link.Dial{Target: address, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()}
	runErr := link.Run(ctx, dial, func(ctx context.Context, hub federationv1.LinkClient) error {
		defer cancel() // one attempt
		var stream link.Stream
		if stream, err = hub.Attach(ctx); err != nil {
			return err
		}
		if err = stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: hello}}); err != nil {
			_, err = stream.Recv()
			return err
		}
		var frame *federationv1.HubFrame
		if frame, err = stream.Recv(); err == nil {
			who = frame.GetWelcome().GetClusterId()
		}
		return err
	})
	return who, errors.Join(err, runErr)
}

func credentials(t *testing.T, files link.Files) *link.Credentials {
	t.Helper()
	creds, err := link.LoadCredentials(files, logr.Discard())
	must.Succeed(t, err)
	return creds
}

func authority(t *testing.T, dir string) *pki.Authority {
	t.Helper()
	ca, err := pki.New(dir)
	must.Succeed(t, err)
	return ca
}

func issued(t *testing.T) func(link.Files, error) link.Files {
	return func(files link.Files, err error) link.Files {
		t.Helper()
		must.Succeed(t, err)
		return files
	}
}

// I12: a worker's identity is in its certificate.
func TestI12IdentityComesFromTheCertificate(t *testing.T) {
	ca := authority(t, t.TempDir())
	address := serve(t, issued(t)(ca.Hub("127.0.0.1")), nil)
	for _, id := range []string{"a", "b"} {
		who, err := ask(t, address, credentials(t, issued(t)(ca.Cluster(id))), &federationv1.Hello{Term: "cluster-z"})
		if err != nil || who != id {
			t.Errorf("the hub takes cluster %s for %q (%v)", id, who, err)
		}
	}
}

func TestWhoIsKeptOut(t *testing.T) {
	ca, stranger := authority(t, t.TempDir()), authority(t, t.TempDir())
	hubFiles := issued(t)(ca.Hub("127.0.0.1"))
	address := serve(t, hubFiles, nil)
	ours := credentials(t, issued(t)(ca.Cluster("a")))

	foreign := issued(t)(stranger.Cluster("a"))
	foreign.CA = ca.CAFile() // it trusts this CA; this CA's peers do not trust it
	if who, err := ask(t, address, credentials(t, foreign), &federationv1.Hello{}); err == nil {
		t.Errorf("a cluster with another CA's certificate was let in as %q", who)
	}
	if _, err := ask(t, address, credentials(t, hubFiles), &federationv1.Hello{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a hub's certificate as a worker: %v, want PermissionDenied", err)
	}
	// A worker's certificate does not make a hub.
	posing := serve(t, issued(t)(ca.Cluster("posing")), nil)
	if _, err := ask(t, posing, ours, &federationv1.Hello{}); err == nil {
		t.Error("a worker's certificate was taken for a hub's")
	}
	elsewhere := authority(t, t.TempDir())
	if _, err := ask(t, serve(t, issued(t)(elsewhere.Hub("127.0.0.1")), nil), ours, &federationv1.Hello{}); err == nil {
		t.Error("a hub with another CA's certificate was trusted")
	}
}

func TestIdentityOf(t *testing.T) {
	parse := func(names ...string) (link.Identity, error) {
		cert := &x509.Certificate{}
		for _, name := range names {
			u, err := url.Parse(name)
			must.Succeed(t, err)
			cert.URIs = append(cert.URIs, u)
		}
		return link.IdentityOf(cert)
	}
	for name, want := range map[string]link.Identity{
		"spiffe://atoll.navix.sh/hub":            link.Hub(),
		"spiffe://atoll.navix.sh/cluster/east-1": link.Cluster("east-1"),
	} {
		if got, err := parse(name); err != nil || got != want || got.String() != name {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, names := range [][]string{
		{},
		{"spiffe://atoll.navix.sh/cluster/a", "spiffe://atoll.navix.sh/cluster/b"},
		{"spiffe://atoll.navix.sh/cluster/"},
		{"spiffe://atoll.navix.sh/cluster/A"},
		{"spiffe://atoll.navix.sh/cluster/a/b"},
		{"spiffe://atoll.navix.sh/cluster/a%2fb"},
		{"spiffe://atoll.navix.sh/hub/x"},
		{"spiffe://elsewhere/cluster/a"},
		{"https://atoll.navix.sh/cluster/a"},
		{"spiffe://atoll.navix.sh/cluster/a?x=1"},
		{"/hub"},
	} {
		if got, err := parse(names...); !errors.Is(err, link.ErrIdentity) {
			t.Errorf("%q was taken for %v", names, got)
		}
	}
}

// A certificate that is rotated on disk, and a new CA that overlaps with the old one, are used from the next connection on.
func TestRotationIsPickedUp(t *testing.T) {
	oldDir, newDir := t.TempDir(), t.TempDir()
	oldCA, newCA := authority(t, oldDir), authority(t, newDir)
	hubFiles := issued(t)(oldCA.Hub("127.0.0.1"))
	address := serve(t, hubFiles, nil)
	newcomer := issued(t)(newCA.Cluster("a"))
	newcomer.CA = oldCA.CAFile()
	creds := credentials(t, newcomer)
	if _, err := ask(t, address, creds, &federationv1.Hello{}); err == nil {
		t.Fatal("a certificate of an unknown CA was accepted")
	}
	copyFiles(t, oldCA.CAFile(), oldCA.CAFile(), newCA.CAFile())
	if who, err := ask(t, address, creds, &federationv1.Hello{}); err != nil || who != "a" {
		t.Fatalf("with both CAs trusted: %q, %v", who, err)
	}
	// Half a rotation: the certificate is new and the key is not. The pair read before stays in use.
	replacement := issued(t)(newCA.Hub("127.0.0.1"))
	copyFiles(t, hubFiles.Cert, replacement.Cert)
	if who, err := ask(t, address, creds, &federationv1.Hello{}); err != nil || who != "a" {
		t.Fatalf("in the middle of a rotation: %q, %v", who, err)
	}
	copyFiles(t, hubFiles.Key, replacement.Key)
	onlyNew := newcomer
	onlyNew.CA = newCA.CAFile()
	if who, err := ask(t, address, credentials(t, onlyNew), &federationv1.Hello{}); err != nil || who != "a" {
		t.Fatalf("after the rotation: %q, %v", who, err)
	}
}

// jumping is a clock on which time passes without a waiting goroutine.
type jumping struct {
	clock.RealClock
	ahead atomic.Int64
}

func (j *jumping) Now() time.Time { return j.RealClock.Now().Add(time.Duration(j.ahead.Load())) }

func (j *jumping) Since(t time.Time) time.Duration { return j.Now().Sub(t) }

// A hub that leaves again and again was up in between: its workers return as soon as it does.
func TestAHubThatWasThereIsNotLongAway(t *testing.T) {
	ca := authority(t, t.TempDir())
	address := serve(t, issued(t)(ca.Hub("127.0.0.1")), nil)
	dial := link.Dial{Target: address, Credentials: credentials(t, issued(t)(ca.Cluster("east"))), Log: logr.Discard()}
	for name, test := range map[string]struct {
		reached bool
		want    time.Duration
	}{"there each time": {true, 2 * time.Second}, "never there": {false, 30 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			now := &jumping{}
			dial := dial
			dial.Clock = now
			var ceiling time.Duration
			dial.Random = func(n int64) int64 {
				ceiling = time.Duration(n)
				return 0
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			attempts := 0
			err := link.Run(ctx, dial, func(ctx context.Context, hub federationv1.LinkClient) error {
				if attempts++; attempts == 60 {
					defer cancel()
				}
				if test.reached {
					stream, err := hub.Attach(ctx)
					if err == nil {
						err = stream.Send(&federationv1.WorkerFrame{})
					}
					if err == nil {
						_, err = stream.Recv()
					}
					if err != nil {
						t.Error(err)
					}
				}
				now.ahead.Add(int64(5 * time.Second))
				return errors.New("broken")
			})
			if err != nil || ceiling != test.want {
				t.Errorf("the pause after the last failure is below %s, want %s (%v)", ceiling, test.want, err)
			}
		})
	}
}

// copyFiles writes to a path what files have, one after the other.
func copyFiles(t *testing.T, path string, from ...string) {
	t.Helper()
	var content []byte
	for _, file := range from {
		part, err := os.ReadFile(file)
		must.Succeed(t, err)
		content = append(content, part...)
	}
	must.Succeed(t, os.WriteFile(path, content, 0o600))
}

func TestAPanicEndsOneStreamOnly(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := link.NewMetrics(registry)
	must.Succeed(t, err)
	ca := authority(t, t.TempDir())
	address := serve(t, issued(t)(ca.Hub("127.0.0.1")), metrics)
	creds := credentials(t, issued(t)(ca.Cluster("a")))
	if _, err := ask(t, address, creds, &federationv1.Hello{Term: "panic"}); status.Code(err) != codes.Internal {
		t.Errorf("a handler that panics: %v, want Internal", err)
	}
	if who, err := ask(t, address, creds, &federationv1.Hello{}); err != nil || who != "a" {
		t.Errorf("after a panic: %q, %v", who, err)
	}
	if n, err := testutil.GatherAndCount(registry, "atoll_link_frames_total"); err != nil || n == 0 {
		t.Errorf("frames were not counted: %d, %v", n, err)
	}
}

func TestTheAuthorityIsReopened(t *testing.T) {
	dir := t.TempDir()
	first := issued(t)(authority(t, dir).Cluster("a"))
	address := serve(t, issued(t)(authority(t, dir).Hub("127.0.0.1")), nil)
	if who, err := ask(t, address, credentials(t, first), &federationv1.Hello{}); err != nil || who != "a" {
		t.Errorf("after reopening the CA: %q, %v", who, err)
	}
	if _, err := authority(t, dir).Cluster("not/a/cluster"); err == nil {
		t.Error("a certificate was issued for an id that is none")
	}
	info, err := os.Stat(first.Key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v (%v), want 0600", info.Mode(), err)
	}
	expiry := credentials(t, first).Expiry()
	if left := time.Until(expiry); left < 29*24*time.Hour || left > 31*24*time.Hour {
		t.Errorf("the certificate lasts %s", left)
	}
}
