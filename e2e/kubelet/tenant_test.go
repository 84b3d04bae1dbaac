// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// tenantPort is the port of e2e/tenant.
const tenantPort = 8000

// errNothing is the tenant's response for missing data.
var errNothing = errors.New("nothing there")

// whoami distinguishes processes.
type whoami struct {
	Tag, Hostname, Boot string
	PID                 int
}

// ask calls the tenant in a Pod through the kubelet, and returns its response.
func ask(ctx context.Context, cluster, pod, path string, query ...string) (string, error) {
	return askIn(ctx, cluster, namespace, pod, tenantPort, path, query...)
}

func askIn(ctx context.Context, cluster, namespace, pod string, port int, path string, query ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nodes[cluster].Dial(ctx, namespace, pod, port)
		},
	}
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod+path+"?"+values.Encode(), nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return string(body), nil
	case http.StatusNotFound:
		return "", errNothing
	}
	return "", fmt.Errorf("%s: %s", path, strings.TrimSpace(string(body)))
}

// mustAsk waits until the tenant responds: a container runs before its program listens.
func mustAsk(ctx context.Context, t *testing.T, cluster, pod, path string, query ...string) string {
	t.Helper()
	var out string
	wait.For(t, patience, pod+" to answer "+path, func(ctx context.Context) (err error) {
		out, err = ask(ctx, cluster, pod, path, query...)
		return err
	})
	return out
}

func who(ctx context.Context, t *testing.T, cluster, pod string) whoami {
	t.Helper()
	var w whoami
	must.Succeed(t, json.Unmarshal([]byte(mustAsk(ctx, t, cluster, pod, "/whoami")), &w))
	return w
}

func quantity(s string) *resource.Quantity {
	if s == "" {
		return nil
	}
	q := resource.MustParse(s)
	return &q
}
