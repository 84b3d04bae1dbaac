// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"navix.sh/atoll/pkg/envelope"
)

// EtcdOptions specify the etcd and the part of it that a store uses.
type EtcdOptions struct {
	Endpoints                 []string // URLs
	CertFile, KeyFile, CAFile string
	Username, Password        string
	Prefix                    string // common prefix of all stores of a hub, such as /atoll
	Kind                      string // kind of the content, such as claims; part of every key
	Schema                    uint64 // schema of the content
	Sealer                    *envelope.Sealer
	// Migrating opens a store that a migration is filling. Otherwise such a store is rejected.
	Migrating bool
	// Existing opens only a store that exists, and fails with ErrNone otherwise.
	Existing bool
}

// Validate returns an error that names what is invalid.
func (o EtcdOptions) Validate() error {
	if len(o.Endpoints) == 0 || slices.Contains(o.Endpoints, "") {
		return fmt.Errorf("etcd endpoints: %q is not valid, want URLs with commas between them", strings.Join(o.Endpoints, ","))
	}
	secure := 0
	for _, endpoint := range o.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.Port() == "" || u.Path != "" || u.RawQuery != "" || u.User != nil ||
			u.Scheme != "https" && u.Scheme != "http" {
			return fmt.Errorf("etcd endpoint: %q is not valid, want https://HOST:PORT", endpoint)
		}
		if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("etcd endpoint: %q is not valid, want https, or an address of loopback", endpoint)
		}
		if u.Scheme == "https" {
			secure++
		}
	}
	if secure != 0 && secure != len(o.Endpoints) {
		return fmt.Errorf("etcd endpoints: %q is not valid, want either https or http for all", strings.Join(o.Endpoints, ","))
	}
	if secure == 0 && (o.CertFile != "" || o.CAFile != "") {
		return errors.New("etcd certificate files need https endpoints")
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("etcd client certificate: want both the certificate and its key")
	}
	if (o.Username == "") != (o.Password == "") {
		return errors.New("etcd user: want both a name and a password")
	}
	if !strings.HasPrefix(o.Prefix, "/") || strings.HasSuffix(o.Prefix, "/") || len(o.Prefix) > 128 {
		return fmt.Errorf("etcd prefix: %q is not valid, want 1 to 128 bytes that begin and do not end with /", o.Prefix)
	}
	return nil
}
func (o EtcdOptions) tls() (*tls.Config, error) {
	if !strings.HasPrefix(o.Endpoints[0], "https:") {
		return nil, nil // plain text, on loopback
	}
	for _, file := range []string{o.CertFile, o.KeyFile, o.CAFile} {
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("etcd certificate: %w", err)
		}
	}
	info := transport.TLSInfo{CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.CAFile}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("etcd certificates: %w", err)
	}
	return config, nil
}
