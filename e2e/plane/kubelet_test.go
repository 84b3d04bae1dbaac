// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/e2e/forward"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/testserver"
)

func TestPodsCanBeReachedThroughTheAPIServer(t *testing.T) {
	s := create(t, newPod("image"))
	s.until("the Pod to run", ready)
	p := planes.Plane("east")
	kubectl := func(stdin string, args ...string) (string, error) {
		return p.KubectlInput(s.ctx, strings.NewReader(stdin), append([]string{"-n", s.pod.Namespace}, args...)...)
	}

	out, err := kubectl("from stdin", "exec", "-i", s.pod.Name, "--",
		"sh", "-c", `cat; echo one >> "$`+plane.ContainerLogEnv+`"; echo two >> "$`+plane.ContainerLogEnv+`"`)
	if err != nil || out != "from stdin" {
		t.Errorf("exec: %q, %v", out, err)
	}
	if _, err := kubectl("", "exec", s.pod.Name, "--", "sh", "-c", "exit 3"); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("exec of what exits with 3: %v", err)
	}
	if out, err := kubectl("", "logs", s.pod.Name); err != nil || out != "one\ntwo\n" {
		t.Errorf("logs: %q, %v", out, err)
	}
	if out, err := kubectl("", "logs", "--tail=1", s.pod.Name); err != nil || out != "two\n" {
		t.Errorf("the last line: %q, %v", out, err)
	}
	if got, err := throughPort(t, s); err != nil || got != "hello" {
		t.Errorf("port-forward: %q, %v", got, err)
	}
	if err := strangerAtKubelet(s); err == nil {
		t.Error("the kubelet's port answered a caller without a certificate")
	}
}

// throughPort reads what a listener of this machine says, by way of the Pod.
func throughPort(t *testing.T, s *subject) (string, error) {
	t.Helper()
	target := testserver.Listen(t)
	defer target.Close()
	go func() {
		conn, err := target.Accept()
		if err == nil {
			_, _ = conn.Write([]byte("hello"))
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(target.Addr().String())
	open, err := forward.Port(planes.Plane("east").Config(), s.pod.Namespace, s.pod.Name, port)
	must.Succeed(t, err)
	conn, err := open(s.ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	got, err := io.ReadAll(io.LimitReader(conn, 1<<10))
	return string(got), err
}

func strangerAtKubelet(s *subject) error {
	pod := s.until("the Pod to have a node", ready)
	node, err := s.client.CoreV1().Nodes().Get(s.ctx, pod.Spec.NodeName, metav1.GetOptions{})
	must.Succeed(s.t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	url := fmt.Sprintf("https://127.0.0.1:%d/containerLogs/%s/%s/c0", node.Status.DaemonEndpoints.KubeletEndpoint.Port, pod.Namespace,
		pod.Name)
	answer, err := client.Get(url)
	if err == nil {
		answer.Body.Close()
	}
	return err
}
