// SPDX-License-Identifier: Apache-2.0

// Package envd names the services that E2B clients call in a sandbox. The messages are in its subpackages, generated from protocol files
// that have the names and numbers of E2B's.
package envd

// Port is where the services listen in a sandbox.
const Port = 49983

// Paths of the services' methods.
const (
	ProcessList        = "/process.Process/List"
	ProcessConnect     = "/process.Process/Connect"
	ProcessStart       = "/process.Process/Start"
	ProcessUpdate      = "/process.Process/Update"
	ProcessStreamInput = "/process.Process/StreamInput"
	ProcessSendInput   = "/process.Process/SendInput"
	ProcessSendSignal  = "/process.Process/SendSignal"
	ProcessCloseStdin  = "/process.Process/CloseStdin"

	FilesystemStat             = "/filesystem.Filesystem/Stat"
	FilesystemMakeDir          = "/filesystem.Filesystem/MakeDir"
	FilesystemMove             = "/filesystem.Filesystem/Move"
	FilesystemListDir          = "/filesystem.Filesystem/ListDir"
	FilesystemRemove           = "/filesystem.Filesystem/Remove"
	FilesystemWatchDir         = "/filesystem.Filesystem/WatchDir"
	FilesystemCreateWatcher    = "/filesystem.Filesystem/CreateWatcher"
	FilesystemGetWatcherEvents = "/filesystem.Filesystem/GetWatcherEvents"
	FilesystemRemoveWatcher    = "/filesystem.Filesystem/RemoveWatcher"
)
