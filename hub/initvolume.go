// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// imageUser is the user in the hub's image.
const imageUser = 65532

// initVolumeCommand makes the hub's user the owner of the data directory. A volume that ignores fsGroup belongs to root, and an image
// without a shell has no chown.
func initVolumeCommand() *cobra.Command {
	var uid, gid int
	initVolume := &cobra.Command{
		Use:     "initvolume DIR",
		Aliases: []string{"own"}, // the name in charts before 0.2
		Short:   "Give a new volume to the user that the hub runs as (needs root)",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			// The files in it already belong to the hub: no other process writes there.
			if err := os.Chown(args[0], uid, gid); err != nil {
				return fmt.Errorf("giving away the data directory: %w", err)
			}
			return nil
		},
	}
	initVolume.Flags().IntVar(&uid, "uid", imageUser, "user")
	initVolume.Flags().IntVar(&gid, "gid", imageUser, "group")
	return initVolume
}
