-- What `cbx db init` of schema version 2 made, as pg_dump tells it.

CREATE SCHEMA cbx;

CREATE SCHEMA resource;

CREATE TABLE cbx.box_info (
    project_id text NOT NULL COLLATE pg_catalog."C",
    box_id uuid NOT NULL,
    title text,
    provenance jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE cbx.schema_version (
    version integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.card_boxes (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    box_id uuid NOT NULL,
    card_ids jsonb,
    parent_ids jsonb,
    updated_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP
);
ALTER TABLE ONLY public.card_boxes ALTER COLUMN card_ids SET STORAGE EXTERNAL;

CREATE TABLE public.cards (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    card_id text NOT NULL COLLATE pg_catalog."C",
    content jsonb,
    tool_calls jsonb,
    tool_call_id text COLLATE pg_catalog."C",
    ttl_seconds integer,
    expires_at timestamp with time zone,
    deleted_at timestamp with time zone,
    metadata jsonb,
    created_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE public.projects (
    project_id text NOT NULL COLLATE pg_catalog."C",
    title text NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    owner_id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT projects_status_check CHECK ((status = ANY (ARRAY['active'::text, 'inactive'::text, 'archived'::text])))
);

CREATE TABLE resource.profiles (
    project_id text NOT NULL COLLATE pg_catalog."C",
    profile_box_id text NOT NULL,
    name text NOT NULL,
    worker_target text NOT NULL,
    tags jsonb DEFAULT '[]'::jsonb NOT NULL,
    system_prompt_compiled text,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE ONLY cbx.box_info
    ADD CONSTRAINT box_info_pkey PRIMARY KEY (project_id, box_id);

ALTER TABLE ONLY cbx.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);

ALTER TABLE ONLY public.card_boxes
    ADD CONSTRAINT card_boxes_pkey PRIMARY KEY (tenant_id, box_id);

ALTER TABLE ONLY public.cards
    ADD CONSTRAINT cards_pkey PRIMARY KEY (tenant_id, card_id);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_pkey PRIMARY KEY (project_id);

ALTER TABLE ONLY resource.profiles
    ADD CONSTRAINT profiles_pkey PRIMARY KEY (project_id, profile_box_id);

CREATE INDEX idx_boxes_suffix ON public.card_boxes USING btree (tenant_id, reverse(replace((box_id)::text, '-'::text, ''::text)) text_pattern_ops);

CREATE INDEX idx_boxes_updated ON public.card_boxes USING btree (tenant_id, updated_at, box_id);

CREATE INDEX idx_cards_created ON public.cards USING btree (tenant_id, created_at, card_id);

CREATE INDEX idx_cards_expiry ON public.cards USING btree (tenant_id, expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX idx_cards_suffix ON public.cards USING btree (tenant_id, reverse(card_id));

CREATE INDEX idx_cards_tool_call ON public.cards USING btree (tenant_id, tool_call_id) WHERE (tool_call_id IS NOT NULL);

CREATE INDEX idx_cards_turn ON public.cards USING btree (tenant_id, ((metadata ->> 'agent_turn_id'::text))) WHERE ((metadata ->> 'agent_turn_id'::text) IS NOT NULL);

CREATE INDEX idx_cards_type ON public.cards USING btree (tenant_id, ((metadata ->> 'type'::text)));

CREATE UNIQUE INDEX uniq_cards_card_id ON public.cards USING btree (card_id);

CREATE UNIQUE INDEX idx_resource_profiles_project_name ON resource.profiles USING btree (project_id, name);

CREATE UNIQUE INDEX uniq_profiles_name_any_case ON resource.profiles USING btree (project_id, lower(name));

INSERT INTO cbx.schema_version VALUES (2, '2026-11-22 12:00:00+00');
