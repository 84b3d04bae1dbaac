// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"fmt"
	"log"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/client"
)

// What a Go agent does.
func Example_agent() {
	server, key := atoll.HubEndpoint().URL(), tokens["red"]

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	atoll, err := client.New(client.Options{Server: server, Token: key})
	if err != nil {
		log.Fatal(err)
	}
	sandbox, err := atoll.Create(ctx, &sandboxv1.CreateSandboxRequest{Env: "python"})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	if err := sandbox.WriteFile(ctx, "hello.sh", []byte("echo Hello from $1; exit 3")); err != nil {
		log.Fatal(err)
	}
	result, err := sandbox.Run(ctx, "sh", "hello.sh", "a sandbox")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s%d\n", result.Stdout, result.ExitCode)
	// Output:
	// Hello from a sandbox
	// 3
}
