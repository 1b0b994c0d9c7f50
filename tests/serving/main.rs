//! Reviews served: callers' requests, hooks' answers, and the verdict.

#[path = "../support/front.rs"]
mod front;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;
#[path = "../support/webhook.rs"]
mod webhook;

mod a_caller_that_leaves_cancels_its_hook_calls;
mod answers_are_read_as_by_kube_apiserver;
mod answers_stay_in_the_budget;
mod bad_input_is_refused_precisely;
mod bad_patches_disturb_no_other_request;
mod bypass_lets_through;
mod calls_are_sent_again;
mod certificates_of_hooks_are_judged_as_go_does;
mod connections_to_hooks_are_bounded;
mod enforcement_can_be_tried_first;
mod failure_policies;
mod faults_around_us_are_survived;
mod health_and_reflection_answer_stock_clients;
mod hooks_are_asked_at_once;
mod hooks_in_go_speak_http2;
mod hooks_may_ask_for_time;
mod hooks_over_tls_and_unix_sockets;
mod hooks_reinvoked_by_the_apiserver;
mod hooks_speak_http2_in_many_ways;
mod hooks_that_serve_one_connection_at_a_time;
mod http1_answers_are_bounded;
mod http_hooks;
mod https_front;
mod initializers_act_in_flight;
mod initializers_are_overrun;
mod initializers_attach;
mod initializers_behind_the_front;
mod initializers_by_the_client_library;
mod initializers_share_the_time;
mod match_conditions_decide_who_is_asked;
mod mutating_calls_ahead_of_their_turn;
mod mutating_hooks_are_managed_alike;
mod mutating_hooks_are_not_trusted;
mod mutating_hooks_change_the_object;
mod objects_are_stored_by_label;
mod objects_are_stored_unfinished;
mod objects_in_protobuf;
mod patches_go_back_to_every_caller;
mod policies_decide_in_process;
mod reviews_that_go_in_circles_end;
mod segments_of_one_request;
mod selectors_decide_who_is_asked;
mod sidecars_chain;
mod the_audit_log_answers_why;
mod unfinished_objects_are_followed;
mod unusable_answers_are_call_failures;
mod verdicts_name_their_revision;
mod versions_are_asked_apart;
mod webhooks_are_answered_over_plain_http;
