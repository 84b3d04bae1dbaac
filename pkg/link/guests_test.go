// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/link"
)

// joinable serves a hub at which clusters can join.
func joinable(t *testing.T) (address string) {
	t.Helper()
	ca := authority(t, t.TempDir())
	server := link.NewJoiningServer(credentials(t, issued(t)(ca.Hub("127.0.0.1"))), nil, testlog.New(t))
	federationv1.RegisterLinkServer(server, whoami{})
	link.RegisterJoining(server, func(context.Context, string, *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		return &federationv1.JoinResponse{}, nil
	})
	return testserver.ServeGRPC(t, server)
}

func stranger(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	return dialTLS(t, address, &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, //nolint:gosec // a stranger does not care
	})
}

func joinAt(t *testing.T, conn *grpc.ClientConn, token string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := federationv1.NewJoiningClient(conn).Join(ctx, &federationv1.JoinRequest{Token: token})
	return err
}

// TestI14AGuestMayOnlyJoin: once a connection, with a small request.
func TestI14AGuestMayOnlyJoin(t *testing.T) {
	address := joinable(t)
	conn := stranger(t, address)
	must.Succeed(t, joinAt(t, conn, "token"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for name, call := range map[string]func(federationv1.LinkClient) error{
		"attach": func(c federationv1.LinkClient) error {
			s, err := c.Attach(ctx)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"tunnel": func(c federationv1.LinkClient) error {
			s, err := c.Tunnel(ctx)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	} {
		if err := call(federationv1.NewLinkClient(stranger(t, address))); status.Code(err) != codes.Unauthenticated &&
			status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := joinAt(t, stranger(t, address), string(make([]byte, link.MaxJoin))); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a large request: %v", err)
	}
	if err := joinAt(t, stranger(t, address), string(make([]byte, 1<<20))); err == nil {
		t.Error("a request of a megabyte is read")
	}
}

// TestI14GuestsArePaced: those of one address who ask again and again are refused before they are read.
func TestI14GuestsArePaced(t *testing.T) {
	address := joinable(t)
	refused := 0
	for range 64 {
		if err := joinAt(t, stranger(t, address), "token"); status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	if refused == 0 {
		t.Error("none was refused")
	}
}
