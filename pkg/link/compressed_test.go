// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/link/pki"
)

// zeros is a compression whose messages take a byte, and become 4 MiB.
type zeros struct{}

// decompressed counts what zeros has decompressed.
var decompressed atomic.Int64

func init() { encoding.RegisterCompressor(zeros{}) }

func (zeros) Name() string { return "zeros" }

func (zeros) Compress(w io.Writer) (io.WriteCloser, error) { return oneByte{w}, nil }

func (zeros) Decompress(io.Reader) (io.Reader, error) {
	decompressed.Add(1)
	return strings.NewReader(strings.Repeat("\x00", 4<<20)), nil
}

// oneByte writes one byte for all that it is given.
type oneByte struct{ to io.Writer }

func (oneByte) Write(p []byte) (int, error) { return len(p), nil }
func (o oneByte) Close() error              { _, err := o.to.Write([]byte{0}); return err }

// plainClient connects as a cluster, by gRPC alone.
func plainClient(t *testing.T, ca *pki.Authority, address, cluster string) federationv1.LinkClient {
	t.Helper()
	files := issued(t)(ca.Cluster(cluster))
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	must.Succeed(t, err)
	pem, err := os.ReadFile(files.CA)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return federationv1.NewLinkClient(dialTLS(t, address, &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13,
	}))
}

// dialTLS connects by gRPC alone.
func dialTLS(t *testing.T, address string, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(grpccredentials.NewTLS(config)))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, conn.Close()) })
	return conn
}

// attach expects a welcome as a cluster.
func attach(ctx context.Context, client federationv1.LinkClient, cluster string, options ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Attach(ctx, options...)
	if err != nil {
		return err
	}
	_ = stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: &federationv1.Hello{}}})
	frame, err := stream.Recv()
	if err == nil && frame.GetWelcome().GetClusterId() != cluster {
		return fmt.Errorf("got %v, want a welcome for %s", frame, cluster)
	}
	return err
}

// I14: a stream of compressed frames is refused before one is decompressed, whatever the cluster; streams of other calls of the
// connection are served.
func TestI14TheLinkDecompressesNothing(t *testing.T) {
	ca := authority(t, t.TempDir())
	client := plainClient(t, ca, serve(t, issued(t)(ca.Hub("127.0.0.1")), nil), "a")
	err := attach(t.Context(), client, "a", grpc.UseCompressor("zeros"))
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "messages are not compressed here") {
		t.Errorf("compressed: %v", err)
	}
	if n := decompressed.Load(); n > 0 {
		t.Errorf("%d frames were decompressed", n)
	}
	if err := attach(t.Context(), client, "a"); err != nil {
		t.Errorf("not compressed: %v", err)
	}
}
