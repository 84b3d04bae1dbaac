// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const (
	// podIdentity is the directory with a Pod's credentials for its API server.
	podIdentity = "/var/run/secrets/kubernetes.io/serviceaccount"
	secretKey   = "clusters.json"
	maxAnswer   = 4 << 20
)

// Secret is a place in the hub's own cluster. The hub makes only two kinds of calls to Kubernetes: they need no client library, which would
// double the hub's memory.
type Secret struct {
	name, url string
	tokenFile string // read for each call: the token expires
	client    *http.Client
}

// InCluster returns the Secret with a name in the Pod's own namespace. It must already exist; because RBAC cannot restrict create to a
// name.
func InCluster(name string) (*Secret, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this process runs in no Pod of Kubernetes")
	}
	return newSecret("https://"+net.JoinHostPort(host, port), podIdentity, name)
}

func newSecret(server, identity, name string) (*Secret, error) {
	namespace, err1 := os.ReadFile(filepath.Join(identity, "namespace"))
	ca, err2 := os.ReadFile(filepath.Join(identity, "ca.crt"))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("reading the Pod's identity: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("reading the Pod's identity: no certificate in %s", filepath.Join(identity, "ca.crt"))
	}
	return &Secret{
		name: name, url: server + "/api/v1/namespaces/" + strings.TrimSpace(string(namespace)) + "/secrets/" + name,
		tokenFile: filepath.Join(identity, "token"),
		client: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConns: 1, IdleConnTimeout: syncEvery,
		}},
	}, nil
}

func (s *Secret) String() string { return "Secret " + s.name }

type secretData struct {
	Data map[string][]byte `json:"data"`
}

// Read implements Place.
func (s *Secret) Read(ctx context.Context) ([]byte, error) {
	body, code, err := s.call(ctx, http.MethodGet, nil)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotFound:
		return nil, ErrNone
	case code != http.StatusOK:
		return nil, refusal(code, body)
	}
	var got secretData
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, fmt.Errorf("the API server's response is not valid: %w", err)
	}
	if len(got.Data[secretKey]) == 0 {
		return nil, ErrNone
	}
	return got.Data[secretKey], nil
}

// Write implements Place. It changes nothing else in the Secret.
func (s *Secret) Write(ctx context.Context, document []byte) error {
	patch, err := json.Marshal(secretData{Data: map[string][]byte{secretKey: document}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	body, code, err := s.call(ctx, http.MethodPatch, patch)
	if err == nil && code != http.StatusOK {
		err = refusal(code, body)
	}
	return err
}

func (s *Secret) call(ctx context.Context, method string, patch []byte) (body []byte, code int, err error) {
	token, err := os.ReadFile(s.tokenFile)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the Pod's token: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url, bytes.NewReader(patch))
	if err != nil {
		return nil, 0, fmt.Errorf("calling the API server: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("calling the API server: %w", err)
	}
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	return body, answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// refusal returns an error with the message of a Status. For any other body it has only the code: the body may be a Secret.
func refusal(code int, body []byte) error {
	var status struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return fmt.Errorf("the API server returned %d: %s", code, status.Message)
	}
	return fmt.Errorf("the API server returned %d", code)
}
