// Package kube is the only door to a cluster's Kubernetes API. It speaks HTTP itself: no clientset, no informers, no scheme.
//
// A Client writes: each kind of writing is one method, which makes no call where nothing would change and answers with the
// errors of errors.go. A Mirror reads: it holds a trimmed copy of the kinds that it was made for, fills it by streamed LISTs,
// keeps it by watches and hands out snapshots. Both speak in the nouns of package cluster; nothing else of Kubernetes'
// types leaves this package.
//
// It decides nothing, logs nothing and retries only what the API asks to be repeated. An object that cannot be understood
// becomes a noun whose field Invalid says why; it never hides the others.
package kube
