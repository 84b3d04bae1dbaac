// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

type echo struct {
	federationv1.UnimplementedHistoryServer
}

func (echo) Copy(s grpc.BidiStreamingServer[federationv1.CopyFrame, federationv1.CopyFrame]) error {
	f, err := s.Recv()
	if err != nil {
		return err
	}
	return s.Send(f)
}

// I12: between replicas both sides check their own cluster's name, each for itself, and their own CA.
func TestI12ReplicasLetInTheirOwnClusterAlone(t *testing.T) {
	authorities := map[string]*pki.Authority{"ours": authority(t, t.TempDir()), "foreign": authority(t, t.TempDir())}
	creds := func(authority, who string) *link.Credentials {
		files, err := authorities[authority].Cluster(who)
		if who == "hub" {
			files, err = authorities[authority].Hub("localhost")
		}
		must.Succeed(t, err)
		return credentials(t, files)
	}
	for name, tc := range map[string]struct {
		server, client *link.Credentials
		serves, dials  string // the cluster that each side is configured for
		refused        string
	}{
		"a replica":                   {creds("ours", "east"), creds("ours", "east"), "east", "east", ""},
		"another cluster dials":       {creds("ours", "east"), creds("ours", "west"), "east", "east", "for its replicas alone"},
		"another cluster listens":     {creds("ours", "west"), creds("ours", "east"), "east", "east", "is no worker of cluster east"},
		"a hub dials":                 {creds("ours", "east"), creds("ours", "hub"), "east", "east", "for its replicas alone"},
		"a hub listens":               {creds("ours", "hub"), creds("ours", "east"), "east", "east", "is no worker of cluster east"},
		"who has another CA dials":    {creds("ours", "east"), creds("foreign", "east"), "east", "east", "unknown authority"},
		"a listener of another CA":    {creds("foreign", "east"), creds("ours", "east"), "east", "east", "unknown authority"},
		"both are of another cluster": {creds("ours", "west"), creds("ours", "west"), "west", "west", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := link.NewPeerServer(tc.server, tc.serves, logr.Discard())
			federationv1.RegisterHistoryServer(server, echo{})
			conn, err := link.DialPeer(testserver.ServeGRPC(t, server), tc.dials, tc.client)
			must.Succeed(t, err)
			defer conn.Close()
			stream, err := federationv1.NewHistoryClient(conn).Copy(t.Context())
			if err == nil {
				_ = stream.Send(&federationv1.CopyFrame{}) // Recv returns why it failed
				_, err = stream.Recv()
			}
			if (err == nil) != (tc.refused == "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%v, want %q", err, tc.refused)
			}
		})
	}
}
