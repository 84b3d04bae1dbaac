// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

const asOther = "ATOLL_PORTS_TRIES"

// TestMain is the other process of a test if it is told to try a port.
func TestMain(m *testing.M) {
	if port := os.Getenv(asOther); port != "" {
		var number int
		_, err := fmt.Sscan(port, &number)
		if err != nil {
			panic(err)
		}
		lock, err := open()
		if err != nil {
			panic(err)
		}
		if _, err := hold(lock, number); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAPortBelongsToOneProcess(t *testing.T) {
	addresses, err := Free(100)
	must.Succeed(t, err)
	seen := map[string]bool{}
	for _, a := range addresses {
		if seen[a] {
			t.Errorf("%s was handed out twice", a)
		}
		seen[a] = true
	}
	other := func() (string, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asOther+"="+strings.TrimPrefix(addresses[0], "127.0.0.1:"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := other(); err == nil || !strings.Contains(out, "another process's") {
		t.Errorf("another process that tries %s: %v, %q", addresses[0], err, out)
	}
	listener, err := net.Listen("tcp", addresses[0]) // its own process can listen
	must.Succeed(t, err)
	must.Succeed(t, listener.Close())
}

func TestAPortWithAListenerIsNotHeld(t *testing.T) {
	addresses, err := Free(1)
	must.Succeed(t, err)
	listener, err := net.Listen("tcp", addresses[0])
	must.Succeed(t, err)
	defer listener.Close()
	if _, err := hold(held.lock, listener.Addr().(*net.TCPAddr).Port); err == nil {
		t.Errorf("%s has a listener and is held", addresses[0])
	}
}
