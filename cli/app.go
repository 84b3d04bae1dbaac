// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// app holds what every command needs: the server's address and the output format.
type app struct {
	server, token, tokenFile, caFile string
	plaintext                        bool
	timeout                          time.Duration
	output                           string
}

func (a *app) bind(flags *pflag.FlagSet) {
	flags.StringVarP(&a.server, "server", "s", "localhost:8080", "address of a hub, or of a worker's local API")
	flags.StringVar(&a.token, "token", "", "API key; better in the environment or a file than on the command line")
	flags.StringVar(&a.tokenFile, "token-file", "", "file with the API key")
	flags.StringVar(&a.caFile, "ca-file", "", "certificates that sign the server's; default the system's")
	flags.BoolVar(&a.plaintext, "plaintext", false, "no TLS; the default for loopback addresses without --ca-file")
	flags.DurationVar(&a.timeout, "timeout", 2*time.Minute, "how long a call may take")
	flags.StringVarP(&a.output, "output", "o", "table", "table, wide, json, yaml or name")
}

// clients are the services of one connection.
type clients struct {
	sandboxes sandboxv1.SandboxesClient
	claims    sandboxv1.ClaimsClient
	clusters  sandboxv1.ClustersClient
	envs      sandboxv1.EnvsClient
	hub       sandboxv1.HubClient
}

// call connects, runs f with a deadline, and closes the connection.
func (a *app) call(cmd *cobra.Command, f func(ctx context.Context, c clients) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	return a.connect(func(c clients) error { return f(ctx, c) })
}

func (a *app) connect(f func(c clients) error) error {
	return a.dial(func(conn *grpc.ClientConn) error {
		return f(clients{
			sandboxes: sandboxv1.NewSandboxesClient(conn), claims: sandboxv1.NewClaimsClient(conn),
			clusters: sandboxv1.NewClustersClient(conn), envs: sandboxv1.NewEnvsClient(conn),
			hub: sandboxv1.NewHubClient(conn),
		})
	})
}

func (a *app) dial(f func(conn *grpc.ClientConn) error) error {
	creds, err := a.credentials()
	if err != nil {
		return err
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
	token, err := a.bearer()
	if err != nil {
		return err
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearerToken{token, creds.Info().SecurityProtocol == "tls"}))
	}
	conn, err := grpc.NewClient(a.server, options...)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", a.server, err)
	}
	defer conn.Close()
	return f(conn)
}

func (a *app) credentials() (credentials.TransportCredentials, error) {
	config, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	if config == nil {
		return insecure.NewCredentials(), nil
	}
	return credentials.NewTLS(config), nil
}

// tlsConfig returns nil for plaintext.
func (a *app) tlsConfig() (*tls.Config, error) {
	if a.plaintext || (a.caFile == "" && loopback(a.server)) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.caFile != "" {
		pem, err := os.ReadFile(a.caFile)
		if err != nil {
			return nil, fmt.Errorf("reading --ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file %s holds no PEM certificate", a.caFile)
		}
	}
	return config, nil
}

func (a *app) bearer() (string, error) {
	if a.tokenFile == "" {
		return a.token, nil
	}
	data, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", fmt.Errorf("reading --token-file: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// bearerToken sends an API key; over plaintext only if the user asked for plaintext or the server is this machine.
type bearerToken struct {
	token string
	tls   bool
}

func (b bearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearerToken) RequireTransportSecurity() bool { return b.tls }
